"""The built-in environments, the calculator, the words of `--environment`, and how replies become tokens."""

import math
from fractions import Fraction

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import tiny_model
from training_runs import small_settings

from gmc.environments.base import ASSISTANT, Turn
from gmc.environments.build import build_environment, complete, is_binary
from gmc.environments.calculator import CalculationError, calculate
from gmc.environments.registry import list_environments
from gmc.environments.tools import Tools
from gmc.errors import UsageError
from gmc.models import load_model
from gmc.problems.base import Problem
from gmc.problems.templates import get_template
from gmc.testing import check_environment

pytestmark = pytest.mark.unit

PROBLEM = Problem("p", "What is $3+4$?", "7")


@pytest.mark.parametrize("name", ["single", "retry", "tools"])
def test_built_in_environments_keep_the_contract(name):
    (plugin,) = [plugin for plugin in list_environments() if plugin.name == name]
    check_environment(plugin.cls)


VALUES = {
    "3*(4+5)": "27",
    "1/3": "0.333333333333",
    "2/4": "0.5",
    "6/3": "2",
    "0.1+0.2": "0.3",
    "2^10": "1024",
    "2**-1": "0.5",
    "7 // 2 + 7 % 4": "6",
    "-(3-5)": "2",
    "sqrt(16)": "4",
    "sqrt(2)": "1.41421356237",
    "sqrt(1/4)": "0.5",
    "abs(-3) + max(1, 2, 3) - min(4, 5)": "2",
    "round(7/2)": "4",
    "3 × 4 ÷ 2": "6",
    "2 ** 0.5": "1.41421356237",
    "10**30": "1" + "0" * 30,
}


@pytest.mark.parametrize(("expression", "value"), VALUES.items())
def test_the_calculator_calculates(expression, value):
    assert calculate(expression) == value


@examples(200)
@given(
    st.recursive(
        st.integers(0, 99).map(str),
        lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda p: f"({''.join(p)})"),
        max_leaves=6,
    )
)
def test_the_calculator_agrees_with_fractions(expression):
    exact = "".join(f"Fraction({part})" if part.isdecimal() else part for part in split(expression))
    try:
        expected = eval(exact, {"Fraction": Fraction})
    except ZeroDivisionError:
        with pytest.raises(CalculationError, match="division by zero"):
            calculate(expression)
        return
    found = calculate(expression)
    assert float(found) == pytest.approx(float(expected), rel=1e-11)
    assert (math.floor(expected) != expected) or found == str(expected)


def split(expression):
    parts = []
    for letter in expression:
        if parts and letter.isdecimal() and parts[-1].isdecimal():
            parts[-1] += letter
        else:
            parts.append(letter)
    return parts


HOSTILE = [
    "__import__('os').system('true')", "().__class__", "open('/etc/passwd').read()", "9**9**9**9", "2**10**6", "(10**300)**300",
    "'a'*10**9", "[0]*10**9", "True + 1", "1j*2", "lambda: 0", "x", "1 if 1 else 2", "1;2", "", "(" * 199, "1_0" * 90, "1e999",
    "sqrt(-1)", "(-8)**0.5", "1/0", "5%0", "0**-1", "round(1,2,3)", "max()", "f'{1}'", "1<2", "min(*[1,2])", "abs(x=1)", "\x00",
    "2.0**2000", "0.0000001**0.1**9999999",
]  # fmt: skip


@pytest.mark.parametrize("expression", HOSTILE)
def test_the_calculator_answers_nothing_else(expression):
    with pytest.raises(CalculationError):
        calculate(expression)


def episode_of(environment, *said):
    episode = environment.start(PROBLEM)
    for text in said:
        episode.turns.append(Turn(ASSISTANT, text))
    return episode


def test_tools_answers_a_call_behind_it_and_ends_with_the_first_turn_without_one():
    tools = Tools()
    assert tools.stop == ("</tool>",)
    answers = {
        "so <tool>3*4</tool>": "<result>12</result>",
        "twice <tool>1</tool> <tool>2+2</tool>": "<result>4</result>",
        "<tool>1/0</tool>\n": "<result>error: division by zero</result>",
        "<tool>import os</tool>": "<result>error: not an arithmetic expression</result>",
        "3*4</tool>": "<result>error: no <tool> before </tool></result>",
        "The answer is 12.": None,
        "<tool>3*4": None,
    }
    for text, answer in answers.items():
        assert tools.reply(episode_of(tools, text), text) == answer
    assert tools.reply(episode_of(Tools(Tools.Settings(calls=1)), "<tool>1</tool>", "<tool>2</tool>"), "<tool>2</tool>")
    few = Tools(Tools.Settings(calls=1))
    assert few.reply(episode_of(few, "<tool>1</tool>", "<tool>2</tool>"), "<tool>2</tool>") is None


def test_tools_tells_the_model_what_it_may_write():
    assert Tools(Tools.Settings(tag="calc", result="is")).start(PROBLEM).question == (
        "What is $3+4$?\nTo calculate, write <calc>3*(4+5)</calc>; the result follows as <is>27</is>."
    )
    assert Tools(Tools.Settings(explain="")).start(PROBLEM).question == PROBLEM.question


def test_a_spec_is_completed_with_every_setting():
    assert complete("single") == "single"
    assert complete("retry(tries=3)") == "retry(tries=3, share=0.5, enough=1.0, message='Wrong. Try again: {question}')"
    assert complete(complete("tools")) == complete("tools")
    assert small_settings("rollout.environment=retry").rollout.environment == complete("retry")
    assert is_binary(["math"], "single")
    assert not is_binary(["math"], "retry")
    assert is_binary(["math"], "retry(share=1)")


REFUSED = {
    "retri": "Did you mean retry?",
    "retry(tries=1)": "tries = 1: give at least 2",
    "retry(times=2)": "no setting times; there are tries, share, enough, message",
    "retry(2)": "what stands in the brackets must be settings",
    "retry()()": "one pair of brackets",
    "retry(tries=2)(share=1)": "one pair of brackets",
    "retry(tries=2, tries=3)": "tries is given 2 times",
    "retry(**{'tries': 3})": "give each setting by its name",
    "retry(message='No. {nothing}')": "{nothing} stands for nothing; {question} is all that is filled in",
    "retry(tries=print())": "what stands in the brackets must be settings",
    "retry(": "write it as retry or retry(tries=3, share=0.25)",
    "retry(message=' {question} ')": "says nothing but the question",
    "tools(tag='result')": "tag and result are both 'result'",
    "tools(tag='a b')": "tag = 'a b'",
    "": "write it as",
}


@pytest.mark.parametrize(("spec", "words"), REFUSED.items())
def test_a_wrong_spec_is_refused_in_one_line(spec, words):
    with pytest.raises(UsageError) as caught:
        build_environment(spec)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_reply_under_plain_templates_is_the_text_that_follows():
    tokenizer = load_model("embedded").tokenizer
    arithmetic = get_template("arithmetic-v1")
    ids = arithmetic.reply_ids("Again: $3+4$.", [5, 1], tokenizer, role="user", inline=False)
    assert tokenizer.decode(ids) == "\nProblem: Again: $3+4$.\nSolution:\n"
    inline = arithmetic.reply_ids("<result>7</result>", [5], tokenizer, role="tool", inline=True)
    assert tokenizer.decode(inline) == "<result>7</result>"
    spelled = arithmetic.reply_ids("<|end|>", [5], tokenizer, role="user", inline=True)
    assert 1 not in spelled


CHAT = (
    "{% for m in messages %}{{ m['role'] + '\n' + m['content'] + '<end>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}"
)


def test_a_reply_under_a_chat_template_is_a_turn_behind_the_end_that_the_model_sampled():
    model = tiny_model()
    model.tokenizer.chat_template = CHAT
    chat = get_template("chat-v1")
    tail = "\nuser\nno<end>\nassistant\n"
    for said, expected in (([9, 1], tail), ([9], "<end>" + tail), ([9, 2], "<end>" + tail)):
        ids = chat.reply_ids("no", said, model.tokenizer, role="user", inline=False)
        assert model.tokenizer.decode(ids) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% if m['role'] != 'user' or loop.first %}{{ m['content'] }}{% endif %}{% endfor %}",
        "{% for m in messages %}{{ m['content'] | upper }}{% endfor %}",
    ],
)
def test_a_chat_template_that_cannot_write_the_turn_is_refused(template):
    model = tiny_model()
    model.tokenizer.chat_template = template
    with pytest.raises(UsageError, match="does not write a turn of role user behind the model's"):
        get_template("chat-v1").reply_ids("no", [9], model.tokenizer, role="user", inline=False)
