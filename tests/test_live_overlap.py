"""A follower samples the next batch while the last one is graded: what overlaps, in which order, and what an end leaves."""

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from live_processes import publish
from training_runs import small_settings

from gmc.engines.base import Engine
from gmc.engines.transformers import TransformersEngine
from gmc.engines.vllm import VllmEngine
from gmc.errors import GmcError
from gmc.generation.following import PolicyWork
from gmc.live.claims import read_ledger
from gmc.live.follow import BatchCounts, Follower, Work
from gmc.live.heartbeats import read_heartbeats
from gmc.models import load_model
from gmc.resolving.build import build_engine, build_maker, build_model, build_scorer
from gmc.rollouts.maker import RolloutMaker
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.reader import read_shard
from gmc.store.shards.writer import write_shard

pytestmark = pytest.mark.unit

PATIENCE = 20.0
"""Seconds until a test takes something for never coming."""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", model="embedded", seed=0)


class Script:
    """Work that notes what happens when. meanwhile, finishing: called within `sample` and `finish` with the batch's number."""

    def __init__(
        self, meanwhile: Callable[[int], None] = lambda batch: None, finishing: Callable[[int], None] = lambda batch: None
    ) -> None:
        self.notes: list[tuple[str, int]] = []
        self._meanwhile, self._finishing = meanwhile, finishing

    def load_policy(self, folder: Path) -> None:
        self.notes.append(("load", int(folder.name[1:])))

    def begin(self, batch: int, version: int) -> Any:
        self.notes.append(("begin", batch))

        def sample() -> int:
            self._meanwhile(batch)
            self.notes.append(("sampled", batch))
            return version

        def finish(path: Path) -> BatchCounts:
            self._finishing(batch)
            path.write_text("shard", "utf-8")
            self.notes.append(("finished", batch))
            return BatchCounts(4, 40)

        return SimpleNamespace(sample=sample, finish=finish)

    def of(self, *kinds: str) -> list[tuple[str, int]]:
        return [note for note in self.notes if note[0] in kinds]


def _follower(run: RunDirectory, script: Script, at_once: int = 1, batches: int = 4) -> Callable[[], int]:
    work = Work(script.load_policy, script.begin, at_once)
    follower = Follower(run, work, max_ahead=batches, lease_seconds=5.0, name="tester")
    return lambda: follower.follow(stopping=lambda: follower.heartbeat.current.batches == batches)


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_batch_is_graded_while_the_next_one_is_sampled(run: RunDirectory, at_once: int) -> None:
    publish(run, 0)
    sampling = [threading.Event() for _ in range(5)]

    def finishing(batch: int) -> None:
        if batch < 3:  # ends only once the next one is in the engine
            assert sampling[batch + 1].wait(PATIENCE)

    script = Script(meanwhile=lambda batch: sampling[batch].set(), finishing=finishing)
    assert _follower(run, script, at_once)() == 4
    order = list(range(4))
    for kind in ("begin", "sampled", "finished"):
        assert script.of(kind) == [(kind, batch) for batch in order]
    ahead = script.notes.index(("begin", 1)) < script.notes.index(("sampled", 0))
    assert ahead is (at_once == 2)
    ledger = read_ledger(run)
    assert (ledger.shards, ledger.claimed) == (frozenset(order), {})
    beat = read_heartbeats(run.followers)["tester"]
    assert (beat.batches, beat.responses, beat.tokens, beat.batch, beat.state) == (4, 16, 160, None, "stopped")


def test_a_newer_policy_waits_for_what_has_begun_and_no_longer(run: RunDirectory) -> None:
    publish(run, 0)
    script = Script(meanwhile=lambda batch: publish(run, 5) if batch == 0 else None)
    assert _follower(run, script, at_once=2)() == 4
    began = script.of("load", "begin", "sampled")
    assert began[:6] == [("load", 0), ("begin", 0), ("begin", 1), ("sampled", 0), ("sampled", 1), ("load", 5)]
    assert sorted(path.name[:15] for path in run.rollouts.iterdir()) == [
        "b000000-v000000", "b000001-v000000", "b000002-v000005", "b000003-v000005"
    ]  # fmt: skip


def test_a_policy_that_came_in_part_is_replaced_also_by_the_one_held_before(run: RunDirectory) -> None:
    publish(run, 0)
    script, gone = Script(meanwhile=lambda batch: publish(run, 5) if batch == 0 else None), run.policies / "v000005"

    def load_policy(folder: Path) -> None:
        script.load_policy(folder)
        if folder == gone:  # the trainer was killed and goes back to version 0
            shutil.rmtree(folder)
            raise OSError("gone")

    work = Work(load_policy, script.begin, 1)
    follower = Follower(run, work, max_ahead=4, lease_seconds=5.0, name="tester")
    follower.follow(stopping=lambda: follower.heartbeat.current.batches == 2)
    assert script.of("load") == [("load", 0), ("load", 5), ("load", 0)]


def test_an_end_finishes_what_is_sampled_and_leaves_what_has_begun_to_others(run: RunDirectory) -> None:
    publish(run, 0)
    script = Script()
    follower = Follower(run, Work(script.load_policy, script.begin, 2), max_ahead=4, lease_seconds=5.0, name="tester")
    assert follower.follow(stopping=lambda: ("sampled", 0) in script.notes) == 1
    assert script.of("begin", "finished") == [("begin", 0), ("begin", 1), ("finished", 0)]
    ledger = read_ledger(run)
    assert (ledger.shards, ledger.claimed) == (frozenset({0}), {})


@pytest.mark.parametrize("part", ["sample", "finish"])
def test_an_error_ends_the_follower_without_a_claim_and_keeps_what_was_sampled_before(run: RunDirectory, part: str) -> None:
    publish(run, 0)

    def fail(batch: int) -> None:
        if batch == 1:
            raise GmcError("the second one fails")

    script = Script(**{{"sample": "meanwhile", "finish": "finishing"}[part]: fail})
    with pytest.raises(GmcError, match="the second one fails"):
        _follower(run, script, at_once=2)()
    ledger = read_ledger(run)
    assert (ledger.shards, ledger.claimed) == (frozenset({0}), {})
    assert read_heartbeats(run.followers)["tester"].error == "the second one fails"


class Apart(TransformersEngine):
    """Has weights of its own, so batches are scored beside its sampling."""

    shares_weights = False

    def load_weights(self, weights: Any) -> None:
        """Keeps them where they are: the test's are never changed while it samples."""


def _maker(tmp_path: Path, run: RunDirectory, engine: type[Engine] | None, *assignments: str) -> RolloutMaker:
    settings = small_settings("delay=live", "rollout.prompts=2", "rollout.max_tokens=12", *assignments)
    model = build_model(settings)
    made = build_engine(settings, model, tmp_path / "log") if engine is None else engine(model)  # type: ignore[call-arg]
    return build_maker(run.run_id, settings, model, build_scorer(settings, model), made)


@pytest.mark.parametrize("engine", [None, Apart])
@pytest.mark.parametrize("more", ["rollout.entropies=true", "rollout.resample_equal=2"])
def test_a_batch_in_stages_is_the_batch_made_at_once(
    tmp_path: Path, run: RunDirectory, engine: type[Engine] | None, more: str
) -> None:
    maker = _maker(tmp_path, run, engine, more)
    publish_policy(maker.model, run.policies, 2, run.run_id)
    work = PolicyWork(maker, run.policies)
    work.load_policy(run.policies / "v000002")
    batch = work.begin(3, 2)
    assert batch.sample() == 2
    path = run.rollouts / "b000003-v000002.parquet"
    counts = batch.finish(path)
    shard = read_shard(path, run_id=run.run_id)
    wanted = maker.make(3, 2)
    assert counts == BatchCounts(
        len(wanted.rows) + 4 * len(wanted.set_aside),
        sum(len(row.response_token_ids) for row in wanted.rows) + sum(group.tokens for group in wanted.set_aside),
    )
    assert shard.metadata.set_aside == wanted.set_aside
    write_shard(tmp_path / path.name, wanted.rows, shard.metadata)
    others = read_shard(tmp_path / path.name, run_id=run.run_id).rollouts
    assert [replace(row, launched_at=None, ready_at=None) for row in shard.rollouts] == others


def test_a_policy_is_loaded_only_when_the_last_batch_is_scored(tmp_path: Path, run: RunDirectory) -> None:
    maker = _maker(tmp_path, run, Apart)
    publish_policy(maker.model, run.policies, 0, run.run_id)
    trainer = load_model("embedded")
    with torch.no_grad():
        trainer.network.get_input_embeddings().weight.mul_(1.1)  # type: ignore[operator]
    publish_policy(trainer, run.policies, 1, run.run_id)
    work, notes = PolicyWork(maker, run.policies), []
    work.load_policy(run.policies / "v000000")
    batch = work.begin(0, 0)
    batch.sample()
    assert maker.scorer is not None
    score, loading = maker.scorer.score, threading.Event()

    def slowly(*texts: Any, **options: Any) -> Any:
        assert loading.wait(PATIENCE)
        loader.join(0.3)  # would load now if it could
        notes.append("scored")
        return score(*texts, **options)

    def load() -> None:
        loading.set()
        work.load_policy(run.policies / "v000001")
        notes.append("loaded")

    maker.scorer.score = slowly  # type: ignore[method-assign]
    loader = threading.Thread(target=load)
    loader.start()
    batch.finish(run.rollouts / "b000000-v000000.parquet")
    loader.join(PATIENCE)
    assert notes == ["scored", "loaded"]
    rows = read_shard(run.rollouts / "b000000-v000000.parquet", run_id=run.run_id).rollouts
    for row in rows:  # the engine's own log-probs are those of version 0
        assert row.trainer_logprobs == pytest.approx(row.engine_logprobs, abs=1e-4)


class FakeVllm:
    """vLLM's stepping interface: every step each request gets a token, its prompt's first plus the tokens so far."""

    def __init__(self) -> None:
        self.running: dict[str, tuple[int, int, list[int]]] = {}
        self.steps = 0
        self.model_config = SimpleNamespace(max_model_len=64)

    def add_request(self, name: str, prompt: dict[str, list[int]], length: int) -> None:
        self.running[name] = (prompt["prompt_token_ids"][0], length, [])

    def step(self) -> list[Any]:
        self.steps += 1
        ended = []
        for name, (first, length, tokens) in list(self.running.items()):
            tokens.append(first + len(tokens))
            if len(tokens) == length:
                del self.running[name]
                steps = [{token: SimpleNamespace(logprob=-1.0)} for token in tokens]
                output = SimpleNamespace(token_ids=tokens, logprobs=steps, finish_reason="length")
                ended.append(SimpleNamespace(request_id=name, finished=True, outputs=[output]))
        return ended


def test_two_batches_of_vllm_move_on_together_and_each_gets_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, llm = VllmEngine.__new__(VllmEngine), FakeVllm()
    engine._llm, engine._model, engine._calls, engine._finished = SimpleNamespace(llm_engine=llm), load_model("embedded"), 0, {}
    monkeypatch.setattr(VllmEngine, "_parameters", lambda self, sampling, size, seed: seed)
    sampling = small_settings().rollout.sampling(())
    first = engine.begin([[10], [20]], group_size=1, sampling=sampling, seeds=[3, 9])
    second = engine.begin([[30], [40]], group_size=1, sampling=sampling, seeds=[5, 12])
    assert [[each.token_ids for each in group] for group in first()] == [[[10, 11, 12]], [list(range(20, 29))]]
    assert llm.steps == 9
    assert [[each.token_ids for each in group] for group in second()] == [[list(range(30, 35))], [list(range(40, 52))]]
    assert llm.steps == 12  # not 9 + 12: the second moved on while the first was waited for
    assert engine._finished == {}
