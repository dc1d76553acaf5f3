"""Batches of the initial policy that one call of the engine samples: many of them come before the first update."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gmc.engines.base import Completion, Responder, Sampling

Groups = list[list[Completion]]
"""Completions of each of a batch's groups."""

Asking = Callable[[int], tuple[list[list[int]], list[int]]]
"""From a batch's number to its prompts and their seeds."""


@dataclass
class Together:
    """Batches 0 … K−1, K … 2K−1 and so on, K = `size`, each sampled as one.

    Which batches belong together depends on their numbers alone, and an engine's rounding on what it is asked at once: so a
    batch has the same bytes whoever makes it, and whether its neighbors were made before, are made now or never. What was
    sampled for neighbors waits here until it is taken.
    """

    size: int
    _waiting: dict[int, Groups] = field(default_factory=dict, init=False)

    def take(self, batch: int, sample: Callable[[Sequence[int]], list[Groups]]) -> Groups:
        """The completions of one batch. sample: those of all batches of such numbers, in order."""
        if batch not in self._waiting:
            first = batch - batch % self.size
            batches = range(first, first + self.size)
            self._waiting = dict(zip(batches, sample(batches), strict=True))
        return self._waiting.pop(batch)


class WithNeighbors(Responder):
    """Stands in for `engine` while one batch is made, and samples those that belong together with it."""

    def __init__(self, engine: Responder, together: Together, batch: int, asking: Asking) -> None:
        self._engine, self._together, self._batch, self._asking = engine, together, batch, asking

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
        progress: Callable[[int], None] | None = None,
    ) -> Groups:
        """What `engine` samples for `prompts`, which are those of the batch."""

        def sample(batches: Sequence[int]) -> list[Groups]:
            asked = [self._asking(batch) for batch in batches]
            groups = iter(
                self._engine.generate(
                    [prompt for own, _ in asked for prompt in own],
                    group_size=group_size,
                    sampling=sampling,
                    seeds=[seed for _, own in asked for seed in own],
                )
            )
            return [[next(groups) for _ in own] for own, _ in asked]

        completions = self._together.take(self._batch, sample)
        if progress:
            progress(sum(map(len, completions)))
        return completions
