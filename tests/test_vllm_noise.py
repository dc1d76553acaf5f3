"""The noise floor between engine and trainer log-probs. Needs no vLLM."""

import math
import random

import pytest

from gmc.engines.noise import measure_noise
from gmc.store.shards.rollout import Rollout

pytestmark = pytest.mark.unit


def _row(differences: list[float], *, trainer: bool = True) -> Rollout:
    base = [-1.0 - index / 100 for index in range(len(differences))]
    engine = [logp + difference for logp, difference in zip(base, differences, strict=True)]
    return Rollout(
        run_id="r",
        problem_id="p",
        batch=0,
        group=0,
        sample=0,
        policy_version=0,
        prompt_token_ids=[1],
        response_token_ids=[2] * len(differences),
        finish_reason="stop",
        reward=0.0,
        status="incorrect",
        answer="",
        prediction=None,
        prompt="",
        response="",
        engine_logprobs=engine,
        trainer_logprobs=base if trainer else None,
    )


def test_numbers_by_hand() -> None:
    found = measure_noise([_row([0.1, -0.3]), _row([0.2, 0.2, 0.0]), _row([0.1] * 4)])
    assert found is not None
    values = [0.1, -0.3, 0.2, 0.2, 0.0, 0.1, 0.1, 0.1, 0.1]
    mean = sum(values) / 9
    assert (found.responses, found.tokens) == (3, 9)
    assert found.mean == pytest.approx(mean)
    assert found.spread == pytest.approx(math.sqrt(sum((value - mean) ** 2 for value in values) / 9))
    assert found.worst == pytest.approx(0.3)
    short, long = found.buckets
    assert (short.shortest, short.longest, short.responses) == (2, 3, 2)
    assert short.spread == pytest.approx(0.3)  # of log rho −0.2 and 0.4
    assert short.worst == pytest.approx(0.4)
    assert (long.shortest, long.longest, long.responses, long.spread) == (4, 4, 1, 0.0)


def test_spread_of_the_ratio_grows_with_the_root_of_length() -> None:
    generator = random.Random(0)
    rows = [_row([generator.gauss(0, 0.05) for _ in range(length)]) for length in (16, 256) for _ in range(200)]
    found = measure_noise(rows)
    assert found is not None
    short, long = found.buckets
    assert found.spread == pytest.approx(0.05, rel=0.05)
    assert long.spread / short.spread == pytest.approx(4, rel=0.25)
    assert "256 tokens" in str(found)


def test_rows_without_both_kinds_or_tokens_give_nothing() -> None:
    assert measure_noise([]) is None
    assert measure_noise([_row([0.1], trainer=False), _row([])]) is None
