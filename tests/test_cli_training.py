"""What a person sees while training and at its end: bars, the summary, and the verdict of an evaluation beside the base."""

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from gmc.cli import progress, training_view
from gmc.cli.eval_verdict import verdict_lines
from gmc.cli.training_summary import summarize
from gmc.cli.training_view import TrainingView
from gmc.resolving.resolve import resolve_settings
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.unit

METRICS = {
    "reward/mean": 0.5,
    "delay/mean": 3.0,
    "delay/max": 4,
    "ratio/ess_share": 0.9,
    "ratio/groups_capped_share": 0.1,
    "optimizer/gradient_norm": 0.01,
    "time/tokens_per_second": 1000.0,
    "time/seconds": 2.0,
    "reward/equal_groups_share": 0.25,
    "delay/version_0_share": 0.1,
}


class Bars:
    """Stands for `progress_bar` and remembers what each bar was told."""

    def __init__(self):
        self.made = []

    def __call__(self, name, total, unit, *, done=0):
        bar = SimpleNamespace(name=name, total=total, done=done, notes=[], open=True)

        def advance(count, note=""):
            assert bar.open
            bar.done += count
            bar.notes.append(note)

        bar.advance = advance
        self.made.append(bar)
        return self._open(bar)

    def _open(self, bar):
        class Context:
            def __enter__(self):
                return bar

            def __exit__(self, *exception):
                bar.open = False

        return Context()


@pytest.fixture
def bars(monkeypatch):
    bars = Bars()
    monkeypatch.setattr(training_view, "progress_bar", bars)
    return bars


def test_what_is_sampled_first_has_a_bar_of_its_own(bars, capsys):
    with TrainingView() as view:
        view.opened(0, 10, 128)
        view.generated(64)
        view.generated(64)
        view.updated(0, METRICS)
        view.generated(64)
        view.updated(1, METRICS)
    sampling, training = bars.made
    assert (sampling.name, sampling.total, sampling.done, sampling.open) == ("sample", 128, 128, False)
    assert (training.name, training.total, training.done) == ("train", 10, 2)
    assert training.notes[1].startswith("reward 0.50  delay 3  sampling: 64")  # the reward stays in view
    written = " ".join(capsys.readouterr().err.split())
    assert "responses to sample before the first update: 128, by the policy that training starts from" in written


def test_where_all_is_imported_only_updates_are_drawn(bars, capsys):
    with TrainingView() as view:
        view.opened(0, 10, 0)
        view.updated(0, METRICS)
    assert [(bar.name, bar.done) for bar in bars.made] == [("train", 1)]
    assert "responses to sample" not in capsys.readouterr().err


def test_nothing_is_drawn_of_a_finished_run(bars, capsys):
    with TrainingView() as view:
        view.opened(10, 10, 0)
    assert (bars.made, capsys.readouterr().err) == ([], "")


def test_a_resumed_run_starts_where_it_was(bars):
    with TrainingView() as view:
        view.opened(7, 10, None)
        view.generated(8)
        view.updated(7, METRICS)
    (training,) = bars.made
    assert training.done == 8


def trained(path, rewards):
    run = RunDirectory.create(path, model="embedded", seed=0)
    run.save_settings("train", resolve_settings(assignments=["estimator.name=tic", "delay=4"]))
    records = [{**METRICS, "update": update, "reward/mean": reward} for update, reward in enumerate(rewards)]
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


def test_the_summary_is_of_the_whole_run(tmp_path):
    run = trained(tmp_path / "run", [0.0] * 50 + [0.5] * 30 + [1.0] * 50)
    console = Console(width=200, record=True)
    console.print(summarize(run))
    text = " ".join(console.export_text().split())
    assert "reward 0.000 in the first 50 updates, 1.000 in the last 50" in text
    assert "delay 3.0 updates on average, 4 at most" in text
    assert "25 % had equal rewards" in text
    assert "4.3 minutes" in text
    assert f"gmc eval --run {run.path} --base" in text


def test_rewards_of_one_frozen_policy_are_not_shown_as_learning(tmp_path):
    run = trained(tmp_path / "run", [0.5, 0.5])
    run.metrics.write_text(run.metrics.read_text().replace('"delay/version_0_share": 0.1', '"delay/version_0_share": 1.0'))
    console = Console(width=200, record=True)
    console.print(summarize(run))
    text = " ".join(console.export_text().split())
    assert "in the first update, 0.500 in the last; 100 % of the last rollouts are by version 0" in text
    assert "cannot show what training changed" in text


def comparison(first, second, low, high, binary=True):
    difference = SimpleNamespace(value=second - first, low=low, high=high)
    score = SimpleNamespace(
        name="avg@4",
        binary=binary,
        first=SimpleNamespace(value=first),
        second=SimpleNamespace(value=second),
        difference=difference,
    )
    first, second = (SimpleNamespace(record={"benchmark": "arithmetic", "model": {"version": version}}) for version in (0, 3))
    return SimpleNamespace(scores=(score,), first=first, second=second)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            comparison(0.3, 0.5, 0.1, 0.3),
            "arithmetic: training raised avg@4: 30.0 % before, 50.0 % after, +20.0 points "
            "(95 % interval over problems +10.0 to +30.0)",
        ),
        (
            comparison(0.5, 0.3, -0.3, -0.1),
            "arithmetic: training lowered avg@4: 50.0 % before, 30.0 % after, -20.0 points "
            "(95 % interval over problems -30.0 to -10.0)",
        ),
        (
            comparison(1.5, 1.625, -0.5, 0.75, binary=False),
            "arithmetic: training did not clearly change avg@4: 1.500 before, 1.625 after, +0.125 "
            "(95 % interval over problems -0.500 to +0.750)",
        ),
    ],
)
def test_the_verdict_says_what_changed_how_stale_the_data_was_and_what_is_next(tmp_path, found, sentence):
    lines = verdict_lines([found], trained(tmp_path / "run", [0.5] * 5))  # the run has gone on since
    assert lines[0] == sentence
    assert lines[1] == "trained by tic at --delay 4 for 3 updates, on rollouts 3.0 updates old on average"
    assert lines[2].startswith("next: ")


def test_an_untrained_run_has_no_verdict(tmp_path):
    run = RunDirectory.create(tmp_path / "run", model="embedded", seed=0)
    assert verdict_lines([comparison(0.3, 0.5, 0.1, 0.3)], run) == []
    assert verdict_lines([], trained(tmp_path / "other", [0.5])) == []


@pytest.mark.parametrize(
    ("width", "shown", "left_out"),
    [
        (80, ["train", "3/30", "ETA", "reward 0.52", "delay 64", "sampling: 128 responses"], ["tok/s"]),
        (200, ["reward 0.52", "tok/s"], []),
    ],
)
def test_reward_and_eta_stay_in_view_and_no_part_is_cut(width, shown, left_out, monkeypatch):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(progress, "stderr", console)
    note = "reward 0.52  delay 64  sampling: 128 responses  ESS 0.97  capped 0.02  grad 0.13  18235 tok/s"
    with progress.progress_bar("train", 30, "updates") as bar:
        bar.advance(3, note)
    lines = [line.rstrip() for line in console.file.getvalue().replace("\r", "\n").splitlines()]
    text = "\n".join(lines)
    assert all(part in text for part in shown), text
    assert not any(part in text for part in left_out), text
    assert "…" not in text
    assert max(map(len, lines)) <= width + 10, "control sequences aside"
