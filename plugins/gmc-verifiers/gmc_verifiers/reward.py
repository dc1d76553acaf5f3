"""The reward of a run whose environment rewards by itself."""

from collections.abc import Sequence

from gmc.rewards.base import NOT_APPLICABLE, Reward, Sample, Score


class EnvironmentsOwn(Reward):
    """Has nothing to say: `--environment verifiers` puts the environment's reward in its place. It asks for no gold answer."""

    name = "verifiers"
    summary = "whatever --environment verifiers(...) makes of the episode; 0 without it"
    needs_answer = False

    def score(self, samples: Sequence[Sample]) -> Sequence[Score]:
        return [Score(0.0, NOT_APPLICABLE) for _ in samples]
