"""Live mode with the real model and the real commands: three followers and a trainer, two of them killed without warning."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from forked_commands import Command, ForkedCommands

from gmc.config.sampling import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.grading import Grader
from gmc.live.overview import overview
from gmc.models import load_model
from gmc.problems.arithmetic import arithmetic_problems
from gmc.problems.templates import default_template, get_template
from gmc.store.files import read_jsonl
from gmc.store.policies import newest_policy
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard
from gmc.store.shards.store import RolloutStore

pytestmark = pytest.mark.process

UPDATES = 60
PROMPTS, GROUP_SIZE = 8, 8
SETTINGS = [
    *("--updates", str(UPDATES), "--prompts", str(PROMPTS), "--group-size", str(GROUP_SIZE), "--learning-rate", "5e-4"),
    *("--set", "train.checkpoint_every=5", "--set", "live.publish_every=2"),
]
LIVE = ["--set", "live.lease_seconds=4", "--set", "live.patience_seconds=900"]

Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    commands, started = ForkedCommands(), list[Command]()

    def _start(*arguments: str) -> Command:
        log = tmp_path / f"process{len(started)}.log"
        started.append(commands.start(*arguments, "--run", str(tmp_path / "run"), *LIVE, log=log))
        return started[-1]

    yield _start
    for process in started:
        process.kill()
        process.wait()
    commands.close()
    for log in sorted(tmp_path.glob("process*.log")):
        print(f"--- {log.name}\n{log.read_text('utf-8', 'replace')[-3000:]}")


def _until(condition: Callable[[], bool], processes: list[Command], seconds: float = 1200.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the awaited state did not come"
        assert all(process.poll() in (None, 0) for process in processes), "a process died by itself"
        time.sleep(0.1)


def _kill(process: Command) -> None:
    process.kill()
    process.wait()


def _accuracy(source: str) -> float:
    """Share of right answers, sampled at temperature 1, on 64 held-out problems with 8 samples each."""
    model = load_model(source)
    problems, template = arithmetic_problems("eval", 64), get_template(default_template("arithmetic"))
    texts = [template.render(problem.question, model.tokenizer) for problem in problems]
    groups = TransformersEngine(model).generate(
        [template.encode(text, model.tokenizer) for text in texts],
        group_size=8,
        sampling=Sampling(max_tokens=64, stop=template.stop),
        seeds=list(range(len(problems))),
    )
    pairs = [
        (problem.answer, model.tokenizer.decode(completion.token_ids, skip_special_tokens=True))
        for problem, group in zip(problems, groups, strict=True)
        for completion in group
    ]
    with Grader() as grader:
        return sum(verdict.correct for verdict in grader.grade_many(pairs)) / len(pairs)


@pytest.mark.slow
def test_three_followers_and_a_trainer_through_two_kills(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "run"
    trainer = start("train", "--live", *SETTINGS)
    followers = [start("rollout", "--follow") for _ in range(3)]

    def updates() -> int:
        return len(read_jsonl(path / "used.jsonl"))

    _until(lambda: updates() >= 12, [trainer, *followers])
    _kill(followers[0])
    _until(lambda: updates() >= 25, [trainer, *followers[1:]])
    _kill(trainer)
    frontier = max(int(folder.name[1:]) for folder in (path / "checkpoints").glob("u*") if (folder / "READY").exists())
    followers[0] = start("rollout", "--follow")
    trainer = start("train", "--resume")
    _until(lambda: f"process {trainer.pid} " in (path / "lock").read_text("utf-8"), [trainer, *followers])
    second = start("train", "--resume")
    _until(lambda: second.poll() is not None, [trainer, *followers])
    # Two trainers never work at once: the second is refused, or comes when the first has made every update.
    assert second.returncode == 1 or trainer.poll() == 0
    said = (tmp_path / "process6.log").read_text("utf-8").replace("\n", " ")
    assert ("another process" if second.returncode else "updates") in said
    assert trainer.wait(1800) == 0
    for follower in followers:
        assert follower.wait(300) == 0

    run = RunDirectory.open(path)
    store = RolloutStore(run.rollouts, run.run_id)
    shards = {stored.batch: stored for stored in store.list()}
    records = read_jsonl(run.used)
    assert [record["update"] for record in records] == list(range(UPDATES))
    batches = [{batch for batch, _ in record["groups"]} for record in records]
    assert all(len(used) == 1 and len(record["groups"]) == PROMPTS for used, record in zip(batches, records, strict=True))
    trained = [used.pop() for used in batches]
    assert len(set(trained)) == UPDATES  # none is trained twice
    assert sorted(shards) == list(range(len(shards)))  # none is lost
    assert set(trained) <= shards.keys()

    delays = [update - shards[batch].version for update, batch in enumerate(trained)]
    metrics = read_jsonl(run.metrics)
    assert [record["delay/mean"] for record in metrics] == delays
    found = overview(run)
    assert found["batches_launched"] == found["batches_trained"] + found["batches_waiting"] == len(shards)
    assert (found["updates"], found["ended"], found["policy_version"]) == (UPDATES, True, UPDATES)
    assert found["delays"]["mean"] == pytest.approx(sum(delays) / UPDATES)
    assert found["delays"]["max"] == max(delays) > 0
    assert 0 < frontier <= 26  # the trainer really went back to a checkpoint

    at_once = [update for update, delay in enumerate(delays) if delay == 0]
    assert all(metrics[update]["ratio/ess_share"] == 1 for update in at_once)  # trainer log-probs: the ratio is exactly 1
    for stored in shards.values():
        rows = read_shard(stored.path, run_id=run.run_id).rollouts
        assert {row.policy_version for row in rows} == {stored.version}
        assert len(rows) == PROMPTS * GROUP_SIZE
        ((launched_at, ready_at),) = {(row.launched_at, row.ready_at) for row in rows}
        assert launched_at is not None
        assert ready_at is not None
        assert time.time() - 7200 < launched_at < ready_at < time.time()

    policy = newest_policy(run.policies)
    assert policy is not None
    torch.manual_seed(0)
    before, after = _accuracy("embedded"), _accuracy(str(policy))
    assert after > before + 0.1, (before, after)
