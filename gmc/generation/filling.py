"""Filling a run with rollouts of its initial policy: what `gmc rollout` does."""

from collections.abc import Callable
from typing import Any

from gmc.config.settings import Settings
from gmc.engines.noise import measure_noise
from gmc.errors import UsageError
from gmc.models import weights_hash
from gmc.resolving.build import build_engine, build_maker, build_model, build_scorer
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.store import RolloutStore
from gmc.store.shards.writer import write_shard


def generate_batches(
    run: RunDirectory, settings: Settings, *, advance: Callable[[int], None], say: Callable[[str], None]
) -> dict[str, Any]:
    """Write the launch batches 0 … `rollout.batches`−1 that the run does not hold yet, all by policy version 0.

    advance: called with the number of newly finished responses, those already on disk included. Returns counts, accuracy and
    mean response length (tokens) over all batches asked for. Raises `UsageError` for a run that has trained: its rollouts come
    from `gmc train`.
    """
    if run.has_trained:
        raise UsageError(f"{run.path}: this run has trained; its trainer makes its rollouts. Use another --run.")
    model = build_model(settings)
    run.bind_weights(weights_hash(model.weights()))
    store = RolloutStore(run.rollouts, run.run_id)
    store.clean()
    engine = build_engine(settings, model, run.engine_log("rollout"))
    try:
        maker = build_maker(run.run_id, settings, model, build_scorer(settings, model), engine)
        with maker.grader:
            for note in maker.problem_set.notes:
                say(note)
            metadata = maker.metadata()
            on_disk = {stored.batch: stored for stored in store.list()}
            rewards, lengths, cut_off, made = [], [], 0, 0
            for batch in range(settings.rollout.batches):
                if batch in on_disk:
                    rows = store.read(on_disk[batch], tokenizer_hash=metadata.tokenizer_hash).rollouts
                    advance(len(rows))
                else:
                    rows = maker.make(batch, 0, advance)
                    write_shard(store.path_for(batch, 0), rows, metadata)
                    made += 1
                if batch == 0 and (noise := measure_noise(rows)):
                    say(str(noise))
                rewards += [row.reward for row in rows]
                cut_off += sum(row.finish_reason == "length" for row in rows)
                lengths += [len(row.response_token_ids) for row in rows]
    finally:
        engine.close()
    return {
        "batches": settings.rollout.batches,
        "responses": len(rewards),
        "made": made,
        "cut_off": cut_off / len(rewards),
        "accuracy": sum(rewards) / len(rewards),
        "mean_length": sum(lengths) / len(lengths),
        "problems": len(maker.problem_set),
        "weights": run.record.weights_hash,
    }
