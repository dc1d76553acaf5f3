"""Prompts as token ids: control tokens are the template's alone, and what tokenizers add or chat templates fail at is said."""

import copy
import json

import pytest
from test_grading_command import run
from tiny_models import character_tokenizer
from tokenizers import AddedToken, processors

from gmc.embedded.tokenizer import END
from gmc.errors import UsageError
from gmc.models import load_model
from gmc.problems.prompt_notes import prompt_notes
from gmc.problems.templates import get_template
from gmc.problems.tokens import added_ids

pytestmark = pytest.mark.unit

PLAIN, CHAT = get_template("boxed-v1"), get_template("chat-v1")
EMBEDDED = load_model("embedded").tokenizer
END_ID = EMBEDDED.eos_token_id


def adding(pattern, tokenizer=EMBEDDED):
    """The tokenizer, putting its end token where the pattern (such as "$A <|end|>") says."""
    tokenizer = copy.deepcopy(tokenizer)
    end = tokenizer.eos_token
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=pattern.replace("E", end), special_tokens=[(end, tokenizer.eos_token_id)]
    )
    return tokenizer


def chatting(template, tokenizer=EMBEDDED):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = template
    return tokenizer


def ids_of(template, question, tokenizer):
    return template.encode(template.render(question, tokenizer), tokenizer, question)


TURNS = "{{ bos_token }}" + END + "{{ messages[0]['content'] }}" + END + "{% if add_generation_prompt %}A: {% endif %}"


@pytest.mark.parametrize("pattern", ["$A E", "E $A E", "$A E E"])
def test_an_appended_end_token_never_stands_at_a_prompts_end_and_is_said(pattern):
    tokenizer = adding(pattern)
    assert tokenizer("1+1")["input_ids"][-1] == END_ID, "the fault is there"
    found = ids_of(PLAIN, "1+1", tokenizer)
    assert found == [END_ID] * pattern.startswith("E") + ids_of(PLAIN, "1+1", EMBEDDED)
    assert any(END in note for note in prompt_notes(PLAIN, tokenizer, {END_ID}))
    assert prompt_notes(PLAIN, EMBEDDED, {END_ID}) == []


def test_what_stands_before_a_text_stays():
    assert added_ids(adding("E $A")) == ([END_ID], [])
    assert ids_of(PLAIN, "1+1", adding("E $A")) == [END_ID, *ids_of(PLAIN, "1+1", EMBEDDED)]


def with_unknown_at_the_start():
    """unk = bos = eos, put before every text, as in OPT; a vocabulary that really lacks characters."""
    tokenizer = character_tokenizer()
    tokenizer.add_special_tokens({"unk_token": "<end>", "bos_token": "<end>"})
    tokenizer.backend_tokenizer.model.unk_token = "<end>"
    return adding("E $A", tokenizer)


def test_an_unknown_id_that_was_put_there_on_purpose_is_accepted():
    tokenizer = with_unknown_at_the_start()
    template = get_template("arithmetic-v1")
    assert template.encode("1+1", tokenizer) == [1, *tokenizer("1+1", add_special_tokens=False)["input_ids"]]
    with pytest.raises(UsageError, match="arithmetic-v1: this model's tokenizer cannot express"):
        template.encode("1+π", tokenizer)
    chat = chatting("<end>{{ messages[0]['content'][:3] }}<end>1", tokenizer)
    assert ids_of(CHAT, "1+1", chat)[0] == 1
    with pytest.raises(UsageError, match="cannot express"):
        ids_of(CHAT, "1+π", chat)


@pytest.mark.parametrize("tokenizer", [EMBEDDED, chatting(TURNS)], ids=["plain", "chat"])
def test_a_control_token_inside_a_question_is_plain_characters(tokenizer):
    template = CHAT if tokenizer.chat_template else PLAIN
    question = f"Is {END} a word? {END}"
    clean, spelled = ids_of(template, "Is it a word?", tokenizer), ids_of(template, question, tokenizer)
    assert spelled.count(END_ID) == clean.count(END_ID) == (2 if template.chat else 0)
    assert tokenizer.decode(spelled) == template.render(question, tokenizer)


def test_a_chat_template_that_rewrites_a_question_with_a_control_token_is_refused():
    tokenizer = chatting("{{ messages[0]['content'] | replace(' ', '  ') }}")
    assert ids_of(CHAT, "1 + 1", tokenizer)
    with pytest.raises(UsageError, match="leave this problem out"):
        ids_of(CHAT, f"1 {END} 1", tokenizer)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('Only tools here.') }}", "TemplateError: Only tools here."),
        ("{{ persona.name }}", "UndefinedError: 'persona' is undefined"),
        ("{% if %}", "TemplateSyntaxError: Expected an expression"),
        ("{{ 1 + 'a' }}", "TypeError: unsupported operand"),
        ("{% for part in messages[0].content %}{{ part.text }}{% endfor %}", "leaves the question out"),
        ("", "no chat template"),
    ],
)
def test_a_chat_template_that_fails_is_one_line_with_its_own_message(template, reason):
    with pytest.raises(UsageError) as caught:
        CHAT.render("What is 1+1?", chatting(template))
    assert reason in str(caught.value)
    assert "chat-v1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_date_in_a_chat_template_is_always_the_same_and_said():
    tokenizer = chatting("{{ strftime_now('%d %B %Y') }} " + TURNS)
    assert CHAT.render("1+1", tokenizer).startswith("01 January 2026")
    [note] = prompt_notes(CHAT, tokenizer, {END_ID})
    assert "2026-01-01" in note
    assert prompt_notes(CHAT, chatting(TURNS), {END_ID}) == []


def test_a_chat_template_that_ends_in_an_end_token_is_said():
    [note] = prompt_notes(CHAT, chatting("{{ messages[0].content }}" + END), {END_ID})
    assert "end token" in note


def test_gmc_grade_shows_the_prompts_ids_and_grades_as_one_to_it(tmp_path):
    found = json.loads(run("--prompt", "1+1", "--json"))
    assert found["prompt_token_ids"] == ids_of(get_template("arithmetic-v1"), "1+1", EMBEDDED)
    assert "".join(found["prompt_tokens"]).replace("Ġ", " ").replace("Ċ", "\n") == found["prompt"]
    load_model("embedded").network.save_pretrained(tmp_path)
    tokenizer = chatting("{{ messages[0].content }}\n<think>\n")
    tokenizer.add_tokens([AddedToken("<think>", special=True)])
    tokenizer.save_pretrained(tmp_path)
    asked = ("--prompt", "1+1", "--model", str(tmp_path), "--template", "chat-v1", "--gold", "2", "--json")
    assert json.loads(run(*asked, "--response", r"\boxed{2}"))["verdict"] == "unparseable"
    assert json.loads(run(*asked, "--response", r"</think>\boxed{2}"))["verdict"] == "correct"
