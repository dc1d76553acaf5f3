"""What a task is made of, and how the end of its training is told; training itself is in test_lab_sweep.py."""

import json
from types import SimpleNamespace

import pytest

from gmc.lab.sweep import _with_common_bases
from gmc.lab.sweep_plan import Planner
from gmc.lab.sweep_task import Task, base_key, first_batches
from gmc.lab.sweep_worker import Throttled, run_task
from gmc.resolving.resolve import resolve_settings
from gmc.training import run
from tests.sweep_files import make_sweep

pytestmark = pytest.mark.unit


def settings_of(*assignments, **flags):
    return resolve_settings(flags=flags, assignments=assignments)


def test_runs_of_one_seed_and_sampling_share_version_0_whatever_their_delay_and_rule():
    one = base_key(settings_of(delay="64", **{"estimator.name": "gmc"}))
    assert base_key(settings_of(delay="8", **{"estimator.name": "truncated"})) == one
    assert base_key(settings_of("rollout.batches=3", "train.updates=9")) == one
    others = [{"seed": 1}, {"rollout.temperature": 0.5}, {"rollout.prompts": 4}, {"rollout.group_size": 4}]
    assert len({one, *(base_key(settings_of(**other)) for other in others)}) == 5


def test_as_many_batches_are_shared_as_the_longest_delay_needs(tmp_path):
    assert [first_batches(settings_of(delay=delay)) for delay in ("0", "64", "ramp:64", "reuse:4")] == [1, 65, 1, 1]
    assert first_batches(settings_of("train.updates=9", delay="64")) == 9
    assert first_batches(settings_of(delay="length:28")) == 0  # lengths decide
    delays = make_sweep(select=None, compare=None, arms={"gmc": {}}, axes={"delay": ["2", "3"]}, seeds=[0, 1])
    tasks = [Task.of(each.run, tmp_path, each.settings, None) for each in Planner(delays, "f").verdict({})]
    shared = _with_common_bases(tasks)
    assert {task.base[1] for task in shared} == {4}
    assert len({task.base[0] for task in shared}) == 2
    assert [task.base for task in _with_common_bases(tasks[:1])] == [None]  # nobody to share with
    assert json.loads(json.dumps(shared[0].record()))["run"] == tasks[0].run


def answer_of(tmp_path, monkeypatch, ended, stopping=False):
    (planned,) = Planner(make_sweep(select=None, compare=None, arms={"gmc": {}}, axes={}, seeds=[0]), "f").verdict({})
    task = Task.of(planned.run, tmp_path, planned.settings, None).with_base({})
    monkeypatch.setattr(run, "train_run", ended)
    return run_task(json.loads(json.dumps(task.record())), lambda phase, done, total: None, lambda: stopping)


def test_how_a_training_ended_is_told(tmp_path, monkeypatch):
    def ended(**result):
        return lambda *arguments, **options: SimpleNamespace(**{"finished": False, "stopped_on": ""} | result)

    assert answer_of(tmp_path, monkeypatch, ended())["kind"] == "stopped"
    told = answer_of(tmp_path, monkeypatch, ended(stopped_on="update 7: the gradient is not finite"))
    assert told == {"kind": "failed", "error": "train.stop_on: update 7: the gradient is not finite", "trace": ""}

    def broken(*arguments, **options):
        raise ZeroDivisionError("division by zero\nand more")

    told = answer_of(tmp_path, monkeypatch, broken)
    assert (told["kind"], told["error"]) == ("failed", "ZeroDivisionError: division by zero")
    assert "in broken" in told["trace"]


def test_progress_is_told_at_each_change_and_not_at_each_response(monkeypatch):
    now, sent = [0.0], []
    monkeypatch.setattr("gmc.lab.sweep_worker.time.monotonic", lambda: now[0])
    report = Throttled(sent.append)
    for number in range(10):
        now[0] += 0.2
        report("updates", number, 10)
    report("evaluation", 0, 4)
    assert [(message["phase"], message["done"]) for message in sent] == [
        ("updates", 0),
        ("updates", 3),
        ("updates", 6),
        ("updates", 9),
        ("evaluation", 0),
    ]
