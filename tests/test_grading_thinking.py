"""Thinking is no answer, wherever its tags stand: in the response, in the prompt, or among the special tokens."""

import contextlib

import pytest
from tiny_models import tiny_model
from tokenizers import AddedToken

from gmc.engines.base import Completion, Engine, Sampling
from gmc.grading import Grader
from gmc.grading.extract import extract
from gmc.grading.thinking import opens_thinking
from gmc.problems.base import Problem
from gmc.rewards.math import Math
from gmc.rollouts.asked import Asked
from gmc.rollouts.respond import respond

pytestmark = pytest.mark.unit

PAIRS = [
    ("<think>", "</think>"),
    ("<thinking>\n", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel>thought\n", "<channel|>"),
]


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(("opening", "closing"), PAIRS, ids=[pair[0].strip() for pair in PAIRS])
def test_a_prompt_that_opens_thinking_makes_unfinished_thinking_worth_nothing(opening, closing, cut):
    assert opens_thinking(f"User: what is 1+1?\nAssistant: {opening}", "what is 1+1?")
    inside = r"I try \boxed{2}."
    assert extract(inside, truncated=cut, thinking=True).text is None
    assert extract(opening + inside, truncated=cut, thinking=True).text is None, "the response repeats the prompt's tag"
    assert extract(opening + inside, truncated=cut).text is None
    finished = rf"Maybe \boxed{{7}}.{closing}So \boxed{{2}}."
    assert extract(finished, thinking=True).text == "2"
    assert extract(opening + finished, thinking=True).text == "2"


@pytest.mark.parametrize(
    ("prompt", "question", "opens"),
    [
        ("What does <think> mean?\nAnswer:", "What does <think> mean?", False),
        ("What does <think> mean?\n<think>\n", "What does <think> mean?", True),
        ("Q <think>\n\n</think>\n\n", "Q", False),
        ("Think in <think> </think> tags. Q\nA:", "Q", False),
        ("Q\n<think>Okay,", "Q", True),
        ("Q", "Q", False),
    ],
)
def test_only_what_stands_behind_the_question_opens_thinking(prompt, question, opens):
    assert opens_thinking(prompt, question) == opens


def test_flags_are_one_a_pair():
    with Grader() as grader:
        pairs = [("2", r"\boxed{2}"), ("2", r"\boxed{2}"), ("2", r"\boxed{2}</think>\boxed{3}")]
        found = [verdict.correct for verdict in grader.grade_many(pairs, thinking=[True, False, True])]
    assert found == [False, True, False]


class Scripted(Engine):
    """Answers every prompt with the same tokens."""

    name = "scripted"

    def __init__(self, token_ids):
        self.token_ids = token_ids

    def generate(self, prompts, *, group_size, sampling, seeds, progress=None):
        return [[Completion(self.token_ids, [0.0] * len(self.token_ids), "stop")] * group_size for _ in prompts]

    def load_weights(self, weights):
        pass

    def close(self):
        pass


@pytest.mark.parametrize(
    ("words", "thinking", "text", "correct"),
    [
        (["<think>", "4", "<end>"], False, "<think>4", False),
        (["<think>", "5", "</think>", "4", "<end>"], False, "<think>5</think>4", True),
        (["5", "</think>", "4", "<end>"], True, "5</think>4", True),
        (["4", "</think>", "5", "<end>"], True, "4</think>5", False),
        (["4", "<end>"], True, "4", False),
        (["4", "<turn>", "<end>"], False, "4", True),
    ],
)
def test_special_thinking_tokens_are_seen_by_the_grader(words, thinking, text, correct):
    tokenizer = tiny_model().tokenizer
    marks = [AddedToken(mark, special=True, normalized=False) for mark in ("<think>", "</think>", "<turn>")]
    tokenizer.add_tokens(marks, special_tokens=True)
    engine = Scripted(tokenizer.convert_tokens_to_ids(words))
    prompt = "Say 4.<think>\n" if thinking else "Say 4."
    asked = Asked(Problem("1", "Say 4.", "4"), prompt, [5])
    sampling = Sampling(temperature=1.0, max_tokens=8)
    with contextlib.closing(Math()) as reward:
        [[response]] = respond(engine, tokenizer, reward, [asked], group_size=1, sampling=sampling, seeds=[0])
    assert (response.text, response.reward) == (text, float(correct))
