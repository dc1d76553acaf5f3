"""Scores of the policy in training on a few problems that it is not trained on, asked as `gmc eval` asks them.

Nothing here reaches training: seeds are those of the evaluation, the reward is an object of its own, the weights are read.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gmc.config.settings import RunSettings
from gmc.engines.base import Engine
from gmc.engines.registry import load_engine
from gmc.environments.limits import close_environment
from gmc.evaluation.plan import make_task
from gmc.evaluation.request import Request
from gmc.evaluation.rewarded import Rewarded, format_value
from gmc.evaluation.runner import answer, ask, in_chunks, with_room
from gmc.evaluation.scores import main_score, problem_scores, score_estimates
from gmc.evaluation.session import form_of
from gmc.evaluation.spec import Task
from gmc.models import LanguageModel
from gmc.problems.benchmarks import DATA_VARIABLE
from gmc.resolving.build import COMPUTE_DTYPES, build_rewards
from gmc.resolving.checks import heldout_benchmark
from gmc.rewards.combined import CombinedReward
from gmc.rollouts.asked import Asked
from gmc.store.best import HELDOUT
from gmc.training.place import Place

log = logging.getLogger(__name__)

OWN_ENGINE = "transformers"
"""What samples the answers where training itself samples nothing: it works with the trainer's own tensors."""


@dataclass
class HeldOut:
    """The problems, and what answers and rewards them."""

    model: LanguageModel
    engine: Engine
    task: Task
    asked: Sequence[Asked]
    reward: CombinedReward

    def score(self, version: int, progress: Callable[[int], None]) -> dict[str, float]:
        """Metrics of the current weights, which are policy `version`. progress: called with the number of new responses.

        Raises whatever the engine and the reward raise.
        """
        started = time.perf_counter()
        if not self.engine.shares_weights:
            self.engine.load_weights(self.model.weights())
        samples = [
            sample
            for chunk in in_chunks(self.task, self.asked)
            for sample in answer(self.engine, self.model.tokenizer, self.reward, self.task, chunk, progress)
        ]
        rewarded = Rewarded.of(self.reward, self.task.environment)
        estimates = score_estimates(problem_scores(samples, (), rewarded), self.task.spec.seed)
        name = main_score([*estimates])
        found = estimates[name]
        low, value, high = (format_value(each, rewarded.binary) for each in (found.low, found.value, found.high))
        unit = " %" if rewarded.binary else ""
        log.info(
            "version %d: held-out %s, %s %s%s (95 %% interval %s to %s)",
            *(version, self.task.benchmark.name, name, value, unit, low, high),
        )
        return {
            HELDOUT: found.value,
            "heldout/low": found.low,
            "heldout/high": found.high,
            "heldout/truncated_share": sum(sample.finish_reason == "length" for sample in samples) / len(samples),
            "time/heldout_seconds": time.perf_counter() - started,
        }


def open_heldout(place: Place, engine: Engine | None) -> HeldOut | None:
    """What the settings ask to be scored, None for nothing. engine: the one that training samples with, if it does.

    Raises `UsageError` or `DataError` in one line for problems that are not there or do not fit the model.
    """
    settings, model = place.settings, place.model
    if not settings.train.eval_every or not place.ranks.is_rank_0:
        return None
    task = _task(settings)
    place.resources.callback(close_environment, task.environment)
    asked = ask(model.tokenizer, task)
    task = with_room(task, asked, model.context_tokens)
    for note in task.problems.notes:
        log.info("held-out %s: %s", task.benchmark.name, note)
    reward = _started(build_rewards(settings, task.spec.reward, form=form_of(settings, task)), place.resources)
    return HeldOut(model, engine or _own_engine(place), task, asked, reward)


def _task(settings: RunSettings) -> Task:
    first = settings.eval.model_copy(update={"limit": settings.train.eval_limit})
    data = os.environ.get(DATA_VARIABLE)
    request = Request(trained=True, data_directory=Path(data) if data else None)
    return make_task(heldout_benchmark(settings), settings.model_copy(update={"eval": first}), request)


def _own_engine(place: Place) -> Engine:
    dtype = COMPUTE_DTYPES[place.settings.model.compute_dtype]
    log_file = place.run.engine_log("heldout")
    engine = load_engine(OWN_ENGINE).build(place.settings, place.model, compute_dtype=dtype, log_file=log_file)
    place.resources.callback(engine.close)
    return engine


def _started(reward: CombinedReward, resources: ExitStack) -> CombinedReward:
    resources.callback(reward.close)
    reward.start()
    return reward
