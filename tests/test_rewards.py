"""Built-in rewards, their sum, and how they are written."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gmc.errors import DataError, GmcError, UsageError
from gmc.problems.base import Problem
from gmc.rewards.base import NOT_APPLICABLE, Reward, Sample, Score
from gmc.rewards.build import build_reward, complete, is_binary_reward
from gmc.rewards.combined import CombinedReward
from gmc.rewards.length import Length
from gmc.rewards.registry import list_rewards, load_reward
from gmc.rewards.specs import labels, parse_reward
from gmc.testing import check_reward

PROBLEM = Problem("p0", "What is $6\\cdot 7$?", "42")


def sample(text="", *, answer="42", tokens=3, truncated=False, **fields):
    return Sample(replace(PROBLEM, answer=answer, fields=fields), "asked", text, [1] * tokens, truncated)


def scores(spec, *samples):
    with build_reward([spec]) as reward:
        return [score.reward for score in reward.score(samples)], [score.status for score in reward.score(samples)]


@pytest.mark.process
def test_math_is_the_grader():
    rewards, statuses = scores(
        "math", sample(r"\boxed{42.0}"), sample(r"\boxed{41}"), sample(""), sample(r"\boxed{42", truncated=True)
    )
    assert rewards == [1.0, 0.0, 0.0, 0.0]
    assert statuses == ["correct", "incorrect", "unparseable", "unparseable"]
    assert scores("math", sample("We add up to 42 of it"))[0] == [0.0]
    assert scores("math(strict=False)", sample("We add up to 42 of it"))[0] == [1.0]


@pytest.mark.unit
def test_math_refuses_a_row_whose_gold_it_cannot_grade():
    reward = load_reward("math")()
    with pytest.raises(DataError, match="the answer is empty"):
        reward.prepare(replace(PROBLEM, answer=""))
    with pytest.raises(DataError, match="the answer is a list of 2 values"):
        reward.prepare(replace(PROBLEM, refused="the answer is a list of 2 values"))


@pytest.mark.unit
def test_exact_compares_letter_by_letter():
    assert scores("exact", sample(" Paris\n", answer="Paris"), sample("paris", answer="Paris"))[0] == [1.0, 0.0]
    assert scores("exact(ignore_case=True)", sample("PARIS", answer="Paris "))[0] == [1.0]


@pytest.mark.unit
def test_the_length_penalty_by_value():
    # L_max 10, L_cache 4: nothing up to 6 tokens, then (6 - n) / 4, then -1.
    tokens = [0, 6, 7, 8, 9, 10, 11, 40]
    wanted = [0.0, 0.0, -0.25, -0.5, -0.75, -1.0, -1.0, -1.0]
    assert scores("length(max_tokens=10, cache=4)", *(sample(tokens=n) for n in tokens))[0] == wanted
    # Without a cache there is no slope.
    assert scores("length(max_tokens=10, cache=0)", sample(tokens=10), sample(tokens=11))[0] == [0.0, -1.0]


@pytest.mark.process
def test_a_pattern_is_found_its_answer_compared_and_an_endless_search_stopped():
    assert scores("regex(pattern='<b>.*</b>')", sample("<b>1\n2</b>"), sample("<b>1"))[0] == [1.0, 0.0]
    assert scores("regex(pattern='b', whole=True)", sample("abc"), sample("b"))[0] == [0.0, 1.0]
    named = "regex(pattern='answer: (?P<answer>.*)$')"
    assert scores(named, sample("answer: 42 "), sample("answer: 41"), sample("42"))[1] == ["correct", "incorrect", "no match"]
    with build_reward(["regex(pattern='(a+)+$')"]) as reward:
        slow, quick = reward.score([sample("a" * 60 + "b"), sample("aaa")])
    assert (slow.reward, slow.status) == (0.0, "timeout")
    assert quick.reward == 1.0  # the next search starts afresh


@pytest.mark.process
@pytest.mark.parametrize("plugin", [one for one in list_rewards() if one.name != "code"], ids=lambda plugin: plugin.name)
def test_every_shipped_reward_keeps_the_contract(plugin):  # code needs a problem with tests: test_rewards_code.py
    assert plugin.cls is not None, plugin.error
    settings = {"length": {"max_tokens": 10, "cache": 4}, "regex": {"pattern": "b"}}
    check_reward(plugin.cls, settings.get(plugin.name, {}))


class Fixed(Reward):
    """Gives what it was made with."""

    name, summary = "fixed", "what it was made with"

    def __init__(self, *given: Score):
        super().__init__()
        self.given = given

    def score(self, samples):
        return list(self.given)


def combined(*pairs):
    specs = [parse_reward(f"fixed={weight}") for weight, _ in pairs]
    return CombinedReward(specs, [reward for _, reward in pairs])


@pytest.mark.unit
def test_the_sum_of_weighted_parts_is_what_shards_hold():
    one = Fixed(Score(0.1, "correct", "42"), Score(1.0, "incorrect"))
    other = Fixed(Score(-0.7, "long", note="n"), Score(0.0, NOT_APPLICABLE))
    first, second = combined((1, one), (0.3, other)).score([sample(), sample()])
    assert first.reward == float(np.float32(0.1 + 0.3 * -0.7))
    assert first.parts == {"fixed": float(np.float32(0.1)), "fixed-2": float(np.float32(-0.7))}
    assert (first.status, first.prediction, first.note) == ("correct", "42", "n")
    assert second.reward == 1.0
    assert math.isnan(second.parts["fixed-2"])


@pytest.mark.unit
def test_where_no_part_applies_the_reward_is_0():
    (score,) = combined((1, Fixed(Score(0.0, NOT_APPLICABLE)))).score([sample()])
    assert (score.reward, score.status) == (0.0, NOT_APPLICABLE)


@pytest.mark.unit
def test_a_part_that_failed_is_not_hidden_by_another():
    (score,) = combined((1, Fixed(Score(1.0, "correct"))), (1, Fixed(Score(0.0, "error")))).score([sample()])
    assert (score.reward, score.status) == (1.0, "error")


@pytest.mark.unit
@pytest.mark.parametrize("given", [[], [Score(math.nan, "x")], [Score(1e300, "x")], [1.0]])
def test_a_plugin_that_gives_no_reward_is_named(given):
    with pytest.raises(GmcError, match=r"reward fixed.*report it to its package"):
        combined((1, Fixed(*given))).score([sample()])


@pytest.mark.unit
def test_only_one_part_of_weight_1_may_be_binary():
    assert build_reward(["exact"]).is_binary
    assert is_binary_reward(["exact"])
    for texts in (["exact=2"], ["exact", "math"], ["length(max_tokens=10, cache=4)"]):
        assert not build_reward(texts).is_binary
        assert not is_binary_reward(texts)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "target", "arguments", "keywords", "weight"),
    [
        ("math", "math", (), {}, 1.0),
        ("exact(ignore_case=True)=-0.5", "exact", (), {"ignore_case": True}, -0.5),
        ("rewards.py:short=0.2", "rewards.py:short", (), {}, 0.2),
        ("a/b.c:f('x', [1, 2], k={'y': None})", "a/b.c:f", ("x", [1, 2]), {"k": {"y": None}}, 1.0),
        ("regex(pattern='(a)=3')", "regex", (), {"pattern": "(a)=3"}, 1.0),
        ("regex(pattern='(a)=3')=2", "regex", (), {"pattern": "(a)=3"}, 2.0),
    ],
)
def test_specs_are_read_and_written_alike(text, target, arguments, keywords, weight):
    spec = parse_reward(text)
    assert (spec.target, spec.arguments, dict(spec.keywords), spec.weight) == (target, arguments, keywords, weight)
    assert parse_reward(str(spec)) == spec


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "write it as"),
        ("math=heavy", "the weight 'heavy' is no number"),
        ("math=inf", "the weight 'inf' is no number"),
        ("math(print(1))", "plain Python values"),
        ("math(**{})", "plain Python values"),
        ("math()()", "one pair of brackets"),
        ("math(strict=True)(strict=False)", "one pair of brackets"),
        ("math(strict=True, strict=False)", "strict is given 2 times"),
        ("a.py:f(a=1)(b=2)", "one pair of brackets"),
        ("math(True)", "by name"),
        ("rewards.py:", "write it as"),
        ("mth", "Did you mean math"),
        ("length", "needs max_tokens"),
        ("length(max_tokens=4, cache=5)", "cache 5 is longer than max_tokens 4"),
        ("regex(pattern='(')", "no regular expression"),
        ("exact(case=True)", "no setting case; there are ignore_case"),
        ("nowhere.py:f", "No such file"),
        ("no_such_module_here:f", "no module no_such_module_here"),
    ],
)
def test_a_bad_spec_is_one_line(text, words):
    with pytest.raises(UsageError, match=words) as caught:
        complete([text])
    assert "\n" not in str(caught.value)


@pytest.mark.unit
def test_complete_says_every_setting_and_parts_have_names_of_their_own(tmp_path):
    file = tmp_path / "r.py"
    file.write_text("def f(completions):\n    return []\n")
    assert complete(["math", "exact=0.5", f"{file}:f=2"]) == [
        "math(strict=True)",
        "exact(ignore_case=False)=0.5",
        f"{file}:f=2",
    ]
    assert labels([parse_reward(text) for text in ("math", "a.py:f", "math", "b:f")]) == ["math", "f", "math-2", "f-2"]
    with pytest.raises(UsageError, match="defines no g; it defines f"):
        complete([f"{file}:g"])
    file.write_text("def f(completions):\n    t = [g for g in completions]\n    return t\nif True:\n    h = [i for i in ()]\n")
    for inner in ("t", "g", "i"):  # names inside a function or a comprehension are not the file's
        with pytest.raises(UsageError, match=f"defines no {inner}; it defines f, h$"):
            complete([f"{file}:{inner}"])
    assert Length.Settings(max_tokens=3, cache=3).cache == 3


@pytest.mark.unit
@pytest.mark.parametrize("error", [ValueError("a\nb"), StopIteration(3), MemoryError()], ids=lambda error: type(error).__name__)
def test_what_a_reward_raises_is_one_line_with_its_name(error):
    class Raising(Reward):
        name = "raising"
        summary = "raises"

        def score(self, samples):
            raise error

    with pytest.raises(GmcError, match=rf"^--reward .+: score raised {type(error).__name__}.* --resume$") as caught:
        combined((1, Raising())).score([sample()])
    assert "\n" not in str(caught.value)
