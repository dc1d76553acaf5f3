"""What a session adds to the metrics of an update, and what it writes, by value."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from two_parameters import groups

from gmc.ranks import ALONE
from gmc.store.run_directory import RunDirectory
from gmc.training import session as module
from gmc.training.session import Session

pytestmark = pytest.mark.unit


class Source:
    """Adds one number."""

    def metrics(self) -> dict[str, float]:
        return {"rollouts/groups_waiting": 12.0}


class Tracker:
    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[str, float]]] = []

    def log(self, update: int, metrics: dict[str, float]) -> None:
        self.seen.append((update, dict(metrics)))

    def log_samples(self, update: int, samples: Any) -> None:
        pass


def make_session(tmp_path: Any, tracker: Tracker, monkeypatch: pytest.MonkeyPatch, times: list[float]) -> Session:
    clock = iter(times)
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    updater: Any = SimpleNamespace(parameters=SimpleNamespace(ranks=ALONE), planned_updates=9)
    return Session(run, updater, Source(), 6, None, 50, [tracker], _recorded_at=100.0)


def test_times_noise_and_waiting_of_each_update(tmp_path, monkeypatch):
    tracker = Tracker()
    session = make_session(tmp_path, tracker, monkeypatch, [104.0, 106.5])
    batch = groups()
    differences = []
    for group in batch:
        for row in group:
            own = [0.01 * (place + 1) * (-1) ** place for place in range(len(row.response_token_ids))]
            row.engine_logprobs = [value + extra for value, extra in zip(row.trainer_logprobs, own, strict=True)]
            differences.append(own)
    session.record(6, batch, {"reward/mean": 0.5})
    session.record(7, batch, {"reward/mean": 0.25})
    tokens = [value for own in differences for value in own]
    mean = sum(tokens) / len(tokens)
    totals = [sum(own) for own in differences]
    total_mean = sum(totals) / len(totals)
    wanted = {
        "reward/mean": 0.5,
        "time/seconds": 4.0,
        "time/tokens_per_second": 8 / 4.0,
        "noise/token_spread": (sum((value - mean) ** 2 for value in tokens) / len(tokens)) ** 0.5,
        "noise/response_spread": (sum((value - total_mean) ** 2 for value in totals) / len(totals)) ** 0.5,
        "rollouts/groups_waiting": 12.0,
    }
    lines = [json.loads(line) for line in session.run.metrics.read_text().splitlines()]
    assert lines[0] == pytest.approx({"update": 6, **wanted})
    assert lines[1]["time/seconds"] == 2.5
    assert lines[1]["time/tokens_per_second"] == pytest.approx(8 / 2.5)
    assert [update for update, _ in tracker.seen] == [6, 7]
    assert tracker.seen[0][1] == pytest.approx(wanted)
    assert session.version == 8


def test_used_groups_are_written_in_the_order_of_use(tmp_path, monkeypatch):
    session = make_session(tmp_path, Tracker(), monkeypatch, [101.0])
    session.record(6, groups()[::-1], {})
    assert json.loads(session.run.used.read_text()) == {"update": 6, "groups": [[5, 1], [5, 0]]}


def test_noise_is_left_out_where_one_kind_of_log_probs_is_missing(tmp_path, monkeypatch):
    session = make_session(tmp_path, Tracker(), monkeypatch, [101.0])
    metrics: dict[str, float] = {}
    session.record(6, groups(), metrics)
    assert not [name for name in metrics if name.startswith("noise/")]


def test_the_time_of_an_update_is_that_of_the_update_alone(monkeypatch):
    from test_update_values import Plain, make_updater

    from gmc.training import update as updating

    clock = iter([10.0, 10.75])
    updater = make_updater(Plain())
    monkeypatch.setattr(updating.time, "perf_counter", lambda: next(clock))
    assert updater.run(groups(), 6)["time/update_seconds"] == np.float64(0.75)
