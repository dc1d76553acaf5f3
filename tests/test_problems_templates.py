"""Prompt templates: fixed texts, stop strings, chat templates, token ids."""

import hashlib

import pytest
from tiny_models import character_tokenizer

from gmc.errors import UsageError
from gmc.problems.arithmetic import PROMPT
from gmc.problems.shots import BOXED_SHOTS, MINERVA_SHOTS, Shot
from gmc.problems.templates import default_template, get_template

PUBLISHED = {
    "arithmetic-v1": "ede8169847cfb639",
    "boxed-v1": "cb5e23fa01a8871b",
    "math-two-shot-v1": "5b40f6c26fefa4fe",
    "minerva-four-shot-v1": "cf7fbad30a232720",
}


@pytest.mark.unit
@pytest.mark.parametrize("template_id", PUBLISHED)
def test_published_template_never_changes(template_id: str) -> None:
    prompt = get_template(template_id).render("What is $1+1$?", character_tokenizer())
    assert hashlib.sha256(prompt.encode()).hexdigest()[:16] == PUBLISHED[template_id]


@pytest.mark.unit
@pytest.mark.parametrize("template_id", PUBLISHED)
def test_question_stands_last_and_answer_follows(template_id: str) -> None:
    prompt = get_template(template_id).render("UNIQUE QUESTION", character_tokenizer())
    assert prompt.count("UNIQUE QUESTION") == 1
    assert prompt.split("UNIQUE QUESTION")[1].strip() == "Solution:"


@pytest.mark.unit
def test_arithmetic_template_is_what_the_embedded_model_learned() -> None:
    assert get_template("arithmetic-v1").render("$1+1$", character_tokenizer()) == PROMPT.format(question="$1+1$")


@pytest.mark.unit
@pytest.mark.parametrize(("template_id", "shots"), [("math-two-shot-v1", BOXED_SHOTS), ("minerva-four-shot-v1", MINERVA_SHOTS)])
def test_shot_is_left_out_when_it_is_the_question(template_id: str, shots: tuple[Shot, ...]) -> None:
    template = get_template(template_id)
    assert template.render("q", character_tokenizer()).count("Solution:") == len(shots) + 1
    for shot in shots:
        prompt = template.render(f" {shot.problem} ", character_tokenizer())
        assert prompt.count("Solution:") == len(shots)
        assert shot.solution not in prompt


@pytest.mark.unit
@pytest.mark.parametrize("template_id", ["math-two-shot-v1", "minerva-four-shot-v1", "boxed-v1"])
def test_next_problem_of_a_base_model_is_a_stop_string(template_id: str) -> None:
    template = get_template(template_id)
    written = template.render("q", character_tokenizer())
    assert any(stop in f"the answer.\n\n{written}" for stop in template.stop)


@pytest.mark.process
def test_shots_end_as_the_grader_reads_them() -> None:
    from gmc.grading import grade_many

    answers = ["72", r"\frac{37}{9}"]
    assert all(v.correct for v in grade_many([(a, s.solution) for a, s in zip(answers, BOXED_SHOTS, strict=True)]))
    answers = ["147", r"\frac{5}{36}", r"3\sqrt{3}", "-3, 3"]
    assert all(v.correct for v in grade_many([(a, s.solution) for a, s in zip(answers, MINERVA_SHOTS, strict=True)]))


@pytest.mark.unit
def test_chat_template_of_the_model_is_applied_once() -> None:
    tokenizer = character_tokenizer()
    template = get_template("chat-v1")
    with pytest.raises(UsageError, match="no chat template"):
        template.render("1+1", tokenizer)
    tokenizer.chat_template = "<turn>{{ messages[0]['content'][:3] }}{% if add_generation_prompt %}<turn>{% endif %}"
    prompt = template.render("1+1", tokenizer)
    assert prompt == "<turn>1+1<turn>"
    assert template.encode(prompt, tokenizer) == tokenizer(prompt, add_special_tokens=False)["input_ids"]


@pytest.mark.unit
def test_character_outside_the_vocabulary_is_refused() -> None:
    tokenizer = character_tokenizer()
    tokenizer.unk_token = "<pad>"
    template = get_template("arithmetic-v1")
    assert len(template.encode("1+1", tokenizer)) == 3
    with pytest.raises(UsageError, match="cannot express"):
        template.encode("1+π", tokenizer)


@pytest.mark.unit
def test_unknown_template_lists_the_known() -> None:
    with pytest.raises(UsageError, match="arithmetic-v1, boxed-v1"):
        get_template("boxed-v9")


@pytest.mark.unit
@pytest.mark.parametrize(
    ("source", "template_id"),
    [("arithmetic", "arithmetic-v1"), ("arithmetic:eval", "arithmetic-v1"), ("data/arithmetic.jsonl", "math-two-shot-v1")],
)
def test_default_template(source: str, template_id: str) -> None:
    assert default_template(source) == template_id
    assert default_template(source, "some/model") == template_id
    assert default_template(source, "embedded") == "arithmetic-v1"  # it knows no other prompt, and shots overflow its context
