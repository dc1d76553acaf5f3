"""What W&B and TensorBoard are told of a run: settings, rule, delay, metrics, samples, and what comes again after a resume."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from training_runs import small_settings, train_run
from two_parameters import groups

from gmc.errors import UsageError
from gmc.training.trackers import SAMPLES, Tracked, WandbTracker, chosen_samples, make_trackers

SETTINGS = {"estimator": {"name": "tic", "epsilon": 0.5}, "delay": "ramp:8", "train": {"updates": 4}}


class WandbDouble:
    """Keeps what `wandb.init`, `run.log` and `run.finish` are given."""

    def __init__(self) -> None:
        self.started: dict[str, Any] = {}
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.exit_code: int | None = None

    def init(self, **keywords: Any) -> "WandbDouble":
        self.started = keywords
        return self

    def log(self, values: dict[str, Any], *, step: int) -> None:
        self.logged.append((step, values))

    def finish(self, *, exit_code: int) -> None:
        self.exit_code = exit_code

    @staticmethod
    def Table(*, columns: list[str], data: list[list[Any]]) -> list[dict[str, Any]]:
        return [dict(zip(columns, row, strict=True)) for row in data]


def some_samples() -> Any:
    batch = groups()
    batch[0][0].prompt, batch[0][0].response, batch[0][0].prediction = "What is |x|?\n", "a|b\nc", "7"
    return chosen_samples(batch, 5)


@pytest.mark.unit
def test_a_tracker_that_is_not_installed_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"train\.trackers: wandb.*gmc-rl\[wandb\]"):
        make_trackers(["wandb"], Tracked("id", tmp_path, SETTINGS))


@pytest.mark.unit
def test_samples_are_the_first_of_each_group_with_their_delay():
    first, second = some_samples()
    assert (first.problem, first.prompt, first.response, first.prediction) == ("p0", "What is |x|?\n", "a|b\nc", "7")
    assert (first.reward, first.delay, first.tokens) == (1.0, 2, 3)  # version 3 at update 5
    assert (second.problem, second.reward, second.tokens, second.prediction) == ("p1", 0.0, 2, "")
    many = [[replace(groups()[0][0], problem_id=f"p{index}")] for index in range(SAMPLES + 3)]
    assert [sample.problem for sample in chosen_samples(many, 5)] == [f"p{index}" for index in range(SAMPLES)]


@pytest.mark.unit
def test_wandb_gets_settings_rule_delay_metrics_and_samples(monkeypatch):
    double = WandbDouble()
    monkeypatch.setitem(sys.modules, "wandb", double)
    tracker = WandbTracker(Tracked("abc", Path("runs/demo"), SETTINGS))
    assert double.started["config"] == {**SETTINGS, "rule": "tic", "delay": "ramp:8"}
    assert (double.started["id"], double.started["name"], double.started["resume"]) == ("abc", "demo", "allow")
    tracker.log(5, {"reward/mean": 0.25})
    tracker.log_samples(5, some_samples())
    tracker.close(failed=True)
    assert double.logged[0] == (5, {"reward/mean": 0.25})
    step, table = double.logged[1]
    assert step == 5
    assert table["samples"][0]["response"] == "a|b\nc"
    assert (table["samples"][1]["problem"], table["samples"][1]["delay"]) == ("p1", 2)
    assert double.exit_code == 1


@pytest.mark.process
def test_the_real_wandb_takes_it_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    (tracker,) = make_trackers(["wandb"], Tracked("abc", Path("runs/demo"), SETTINGS))
    tracker.log(0, {"reward/mean": 0.25})
    tracker.log_samples(0, some_samples())
    tracker.close(failed=False)
    (written,) = (tmp_path / "wandb").glob("offline-run-*/run-abc.wandb")
    content = written.read_bytes()
    assert b"ramp:8" in content
    assert b"reward/mean" in content
    (table,) = written.parent.glob("files/media/table/*.json")
    assert "What is |x|?" in table.read_text()


def read_events(folder: Path) -> Any:
    """As TensorBoard itself reads them."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def texts(events: Any, tag: str) -> list[tuple[int, str]]:
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in events.Tensors(f"{tag}/text_summary")]


@pytest.mark.train
def test_tensorboard_shows_a_run_once_also_after_a_resume(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    small = ["rollout.prompts=2", "rollout.max_tokens=16", "delay=0", 'train.trackers=["tensorboard"]']
    path = tmp_path / "run"
    train_run(path, small_settings(*small, "train.updates=3", "train.publish_every=2", "train.checkpoint_every=2"))
    for written in (path / "checkpoints").iterdir():
        if written.name == "u000003":  # as after a kill: update 2 is made again
            written.rename(tmp_path / "lost")
    train_run(path, small_settings(*small, "train.updates=4", "train.publish_every=2"), resume=True)
    events = read_events(path / "tensorboard")
    assert [event.step for event in events.Tensors("reward/mean")] == [0, 1, 2, 3]
    assert [step for step, _ in texts(events, "samples")] == [0, 2]
    step, rule = texts(events, "run/rule and delay")[0]
    assert (step, rule) == (0, "gmc, delay 0")
    assert "| rollout.prompts | 2 |" in texts(events, "run/settings")[0][1]
    _, samples = texts(events, "samples")[0]
    assert len(samples.splitlines()) == 2 + 2  # heading, rule, and one response of each group
    assert all(line.count("|") - line.count("\\|") == 10 for line in samples.splitlines())


@pytest.mark.unit
def test_bars_and_line_ends_stay_in_their_cell_of_a_table(tmp_path, monkeypatch):
    written: list[tuple[str, str, int]] = []
    double = SimpleNamespace(SummaryWriter=lambda folder, **_: SimpleNamespace(add_text=lambda *given: written.append(given)))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", double)
    (tracker,) = make_trackers(["tensorboard"], Tracked("abc", tmp_path, SETTINGS, first_update=7))
    tracker.log_samples(8, some_samples())
    assert [(tag, step) for tag, _, step in written] == [("run/rule and delay", 7), ("run/settings", 7), ("samples", 8)]
    assert "| What is \\|x\\|? ↵  | a\\|b ↵ c | 1.0 | correct |  | 7 | 2 | 3 |" in written[2][1]
