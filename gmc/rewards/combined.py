"""Several rewards as one: the weighted sum trains, the parts are kept beside it."""

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from types import TracebackType

import numpy as np

from gmc.errors import GmcError
from gmc.problems.base import Problem
from gmc.registry import in_one_line
from gmc.rewards.base import NOT_APPLICABLE, Reward, Sample, Score, TrainerState
from gmc.rewards.function import FunctionReward
from gmc.rewards.specs import RewardSpec, labels
from gmc.store.shards.rollout import LARGEST_REWARD


@dataclass(frozen=True)
class Part:
    """One reward of the sum. label: its name among the parts."""

    label: str
    reward: Reward
    weight: float


class CombinedReward(Reward):
    """What a run rewards. A context manager; `close` ends the parts' processes.

    The sum is rounded to float32, as shards store it, so that a resumed run trains on the same number. A part that does not
    apply to a response adds nothing.
    """

    name = "combined"
    summary = "the weighted sum of several"

    def __init__(self, specs: Sequence[RewardSpec], rewards: Sequence[Reward]) -> None:
        super().__init__()
        self.parts = [
            Part(label, reward, spec.weight) for label, reward, spec in zip(labels(specs), rewards, specs, strict=True)
        ]
        self.needs_answer = any(part.reward.needs_answer for part in self.parts)

    @property
    def labels(self) -> list[str]:
        """The parts' names, in order."""
        return [part.label for part in self.parts]

    @property
    def is_binary(self) -> bool:
        """Whether the sum can only be 0 or 1. True of a function that says so only once it has started."""
        return len(self.parts) == 1 and self.parts[0].weight == 1 and self.parts[0].reward.binary

    def start(self) -> None:
        """Import the functions. Raises `RewardError` in one line for one that cannot be."""
        for part in self.parts:
            if isinstance(part.reward, FunctionReward):
                part.reward.start()

    def prepare(self, problem: Problem) -> Problem:
        for part in self.parts:
            problem = part.reward.prepare(problem)
        return problem

    def begin(self, state: TrainerState) -> None:
        for part in self.parts:
            part.reward.begin(state)

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Raises `GmcError` naming a part whose scores are not one finite number a sample."""
        scores = [_checked(part, _asked(part, samples), samples) for part in self.parts]
        sums = [self._sum(own) for own in zip(*scores, strict=True)]
        for score, sample in zip(sums, samples, strict=True):
            if not abs(score.reward) <= LARGEST_REWARD:
                raise GmcError(
                    f"--reward {' + '.join(self.labels)}, problem {sample.problem.problem_id}: the weighted sum is beyond "
                    f"±{LARGEST_REWARD:g}; give smaller weights"
                )
        return sums

    def metrics(self) -> Mapping[str, float]:
        return {
            f"{part.label}/{name}" if len(self.parts) > 1 else name: value
            for part in self.parts
            for name, value in part.reward.metrics().items()
        }

    def close(self) -> None:
        for part in self.parts:
            part.reward.close()

    def __enter__(self) -> "CombinedReward":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _sum(self, scores: Sequence[Score]) -> Score:
        applying = [
            (part.weight, score) for part, score in zip(self.parts, scores, strict=True) if score.status != NOT_APPLICABLE
        ]
        total = math.fsum(weight * score.reward for weight, score in applying)
        first = next((score for _, score in applying), scores[0])
        failed = next((score for score in scores if score.status == "error"), None)
        notes = [score.note for score in scores if score.note]
        return Score(
            reward=float(np.float32(total)) if abs(total) <= LARGEST_REWARD else math.copysign(math.inf, total),
            status=(failed or first).status,
            prediction=next((score.prediction for score in scores if score.prediction is not None), None),
            parts={
                part.label: math.nan if score.status == NOT_APPLICABLE else float(np.float32(score.reward))
                for part, score in zip(self.parts, scores, strict=True)
            },
            note="; ".join(notes) or None,
        )


def _asked(part: Part, samples: Sequence[Sample]) -> Sequence[Score]:
    try:
        return part.reward.score(samples)
    except GmcError:
        raise
    except Exception as error:  # a plug-in can fail in any way
        raise GmcError(
            f"--reward {part.label}: score raised {in_one_line(error)}. Repair it and go on with --resume"
        ) from error


def _checked(part: Part, scores: Sequence[Score], samples: Sequence[Sample]) -> Sequence[Score]:
    if len(scores) != len(samples):
        raise GmcError(f"reward {part.label} gave {len(scores)} scores for {len(samples)} responses; report it to its package")
    for score, sample in zip(scores, samples, strict=True):
        if not is_reward(score):
            found = score.reward if isinstance(score, Score) else score
            raise GmcError(
                f"reward {part.label}, problem {sample.problem.problem_id}: {reprlib.repr(found)} is no finite number within "
                f"±{LARGEST_REWARD:g}; report it to its package"
            )
    return scores


def is_reward(score: object) -> bool:
    """Whether it is a score that can be trained on."""
    return isinstance(score, Score) and isinstance(score.reward, Real) and abs(score.reward) <= LARGEST_REWARD
