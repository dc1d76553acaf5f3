r"""Extraction: where an answer is found, what is cut away first, and that time stays linear."""

import subprocess
import sys

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gmc.grading.extract import closing_braces, extract, find_boxes


@pytest.mark.unit
@pytest.mark.parametrize(
    ("response", "text", "source"),
    [
        (r"First \boxed{1}, then \boxed{2}.", "2", "box"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}", "box"),
        (r"so \fbox{7}", "7", "box"),
        (r"so $\boxed 8$", "8", "box"),
        (r"so \boxed{} and \boxed{9}", "9", "box"),
        (r"\boxed{3} and \boxed{4}", "3, 4", "box"),
        (r"\boxed{3} and \boxed{3}", "3", "box"),
        (r"\boxed{5}\%", r"5\%", "box"),
        (r"\boxed{a \} b}", r"a \} b", "box"),
        ("<answer>12</answer>", "12", "answer tag"),
        ("<answer>1</answer> no, <answer>2</answer>", "2", "answer tag"),
        ("The answer is 42.", "42", "stated answer"),
        ("#### 1,024", "1,024", "stated answer"),
        ("The answer is $x = 3.5$. Done.", "$x = 3.5$", "stated answer"),
        ("The answer is 5 because 2 + 3 = 5.", "5", "stated answer"),
        ("Ответ: 7", "7", "stated answer"),
        ("答案是7。", "7", "stated answer"),
        ("She walked along 12 streets.", None, "none"),
        ("The total is 12 apples.", "12 apples", "closing sentence"),
        ("1 + 2 = **3**", "3", "closing sentence"),
        ("$\\frac{1}{2}$", "$\\frac{1}{2}$", "whole response"),
        ("Let $n = 2", None, "none"),
        ("", None, "none"),
    ],
)
def test_sources(response: str, text: str | None, source: str) -> None:
    found = extract(response)
    assert (found.text, found.source) == (text, source)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("<think>\\boxed{1}</think> The answer is 2.", "2"),
        ("<think>\\boxed{1}", None),
        ("\\boxed{1}</think>\\boxed{2}", "2"),
        ("\\boxed{2} <think>\\boxed{1}", "2"),
        ("<think>Problem: is it \\boxed{1}?</think> \\boxed{2}", "2"),
        ("The answer is 2. I hope it is correct.\n\nProblem: ... The answer is 3.", "2"),
        ("\\boxed{2}\n\nProblem:\nAnother one. \\boxed{3}", "2"),
        ("\\boxed{2}\nQ: another? \\boxed{3}", "2"),
        ("\\boxed{2}<|im_end|>\\boxed{3}", "2"),
        ("I do not know how to do this one.\nProblem: another. \\boxed{3}", None),
        ("Problem: as given.\nSolution: \\boxed{3}", "3"),
        ("Let us restate it:\n**Problem:** as given.\nSolution: \\boxed{3}", "3"),
    ],
)
def test_thinking_and_continuation_are_cut(response: str, text: str | None) -> None:
    assert extract(response).text == text


@pytest.mark.unit
def test_last_number_counts_only_in_the_lenient_mode() -> None:
    response = "We add them up and then 3 of 40"
    assert extract(response).text is None
    assert extract(response, strict=False).text == "40"
    assert extract("so we have -3/4 of it", strict=False).text == "-3/4"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("so the answer is 12", None),
        ("so the answer is 12.", "12"),
        ("\\boxed{12} and then", "12"),
        ("\\boxed{12", None),
        ("the total is 12.", None),
        ("we get 12", None),
    ],
)
def test_truncated_responses_score_only_with_a_complete_answer(response: str, text: str | None) -> None:
    assert extract(response, truncated=True).text == text
    assert extract(response, truncated=True, strict=False).text == text


@pytest.mark.unit
@given(st.text(alphabet="{}\\abx 12,$", max_size=200))
def test_braces_pair_up(text: str) -> None:
    closing = closing_braces(text)
    assert len(set(closing.values())) == len(closing)
    for opening, end in closing.items():
        assert opening < end
        assert (text[opening], text[end]) == ("{", "}")


@pytest.mark.unit
@examples(300)
@given(st.text(alphabet="{}\\boxedf 12,$.\n<>/thinkas", max_size=300), st.booleans(), st.booleans())
def test_extraction_never_fails(text: str, strict: bool, truncated: bool) -> None:
    for response in (text, f"\\boxed{{{text}", f"The answer is {text}", f"{text}\\boxed{{5}}"):
        found = extract(response, strict=strict, truncated=truncated)
        assert (found.text is None) == (found.source == "none")
    assert all(box.content for box in find_boxes(text))


@pytest.mark.unit
@given(st.text(alphabet="{}ab1 ", max_size=60).filter(lambda text: _balanced(text) and any(mark in "ab1" for mark in text)))
def test_a_balanced_box_comes_back_whole(content: str) -> None:
    assert extract(f"so $\\boxed{{{content}}}$.").text == content.strip()


def _balanced(text: str) -> bool:
    depth = 0
    for mark in text:
        depth += (mark == "{") - (mark == "}")
        if depth < 0:
            return False
    return depth == 0


@pytest.mark.process
def test_a_megabyte_takes_linear_time() -> None:
    """Each hostile pattern fills a megabyte; a quadratic step would need hours, the kernel allows one minute of CPU time."""
    program = r"""
import resource
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from gmc.grading.extract import extract
size = 1_000_000
for pattern in ("{", "answer ", "\n "):
    text = (pattern * (size // len(pattern) + 1))[:size]
    extract("\\boxed{answer" + text, strict=False)
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr
