"""Who may attend to whom in a packed micro-batch, in the form that each way to compute attention reads.

Every form is made when it is first asked for: a micro-batch goes through one kind of attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]
_NONE = np.empty(0, dtype=np.int64)

LONG_SEGMENT = 256
"""A segment at least this long is attended alone; shorter ones of similar length share one padded kernel call."""

BUCKET_RATIO = 0.75
"""Segments share a call when the shortest has at least this share of the longest one's tokens."""


class Segment(NamedTuple):
    """Tokens that stand together in the packed sequence: a prompt, or what is read of a response."""

    start: int
    length: int

    @property
    def stop(self) -> int:
        """Where the next one starts."""
        return self.start + self.length


@dataclass(frozen=True)
class Bucket:
    """Segments attended causally in one call, padded right to the longest.

    start: of a single segment, where it starts in the packed sequence; of several, where their slots start among the `padded`
    ones, those of one segment together.
    """

    segments: int
    length: int
    start: int


@dataclass(frozen=True)
class Prefix:
    """Responses [start, stop) of the packed sequence that read the prompt [prompt_start, prompt_stop). reads: each of them."""

    prompt_start: int
    prompt_stop: int
    start: int
    stop: int
    reads: tuple[Segment, ...]

    def padded(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The responses padded right to the longest: the packed position of each slot, the slot of each token start..stop-1."""
        index, valid = pad(self.reads)
        return torch.from_numpy(index).to(device), torch.from_numpy(valid.nonzero()[0]).to(device)


@dataclass(frozen=True)
class Buckets:
    """Segments by similar length. padded: the packed position of every slot of the buckets that hold several segments, padding
    repeats its segment's start; padding: which of these slots are none. restore: for each packed position, its slot in the
    concatenation of all buckets."""

    buckets: tuple[Bucket, ...]
    padded: Tensor
    padding: Tensor
    restore: Tensor


@dataclass(frozen=True)
class Spans:
    """The same layout as bounds of a variable-length kernel: int32 positions where a segment ends and the next one starts.

    segments_S: of all prompts and responses; prompts_P: of the prompts; reads_P: of all that is read after each prompt (its
    responses stand together), counted from `first_response`, where the first response starts. longest_…: tokens of the longest
    of each, 0 for reads when nothing is read.
    """

    segments_S: Tensor
    prompts_P: Tensor
    reads_P: Tensor
    first_response: int
    longest_segment: int
    longest_prompt: int
    longest_read: int


@dataclass(frozen=True)
class AttentionLayout:
    """Causal attention within each segment, and each response's attention to its prompt.

    prompts: they come first and in order. reads_P: what is read of the responses to each, in the same order; none is empty.
    """

    prompts: tuple[Segment, ...]
    reads_P: tuple[tuple[Segment, ...], ...]
    device: torch.device

    @property
    def reads(self) -> list[Segment]:
        """What is read of all responses, in order."""
        return [read for reads in self.reads_P for read in reads]

    @cached_property
    def prefixes(self) -> tuple[Prefix, ...]:
        """The prompts that somebody reads."""
        pairs = zip(self.prompts, self.reads_P, strict=True)
        return tuple(Prefix(prompt.start, prompt.stop, own[0].start, own[-1].stop, own) for prompt, own in pairs if own)

    @cached_property
    def buckets(self) -> Buckets:
        """All segments by similar length."""
        segments = [*self.prompts, *self.reads]
        buckets: list[Bucket] = []
        restore = np.empty(sum(segment.length for segment in segments), dtype=np.int64)
        padded: list[Array] = []
        padding: list[Array] = []
        first = slot = 0
        for members in similar(segments, LONG_SEGMENT, BUCKET_RATIO):
            index, valid = pad(members)
            restore[index[valid]] = first + valid.nonzero()[0]
            first += len(index)
            several = len(members) > 1
            buckets.append(Bucket(len(members), members[0].length, slot if several else members[0].start))
            if several:
                padded.append(index)
                padding.append(slot + (~valid).nonzero()[0])
                slot += len(index)
        return Buckets(tuple(buckets), *(self._indices(parts) for parts in (padded, padding, [restore])))

    @cached_property
    def spans(self) -> Spans:
        """For a variable-length kernel."""
        prompts, reads = ([segment.length for segment in segments] for segments in (self.prompts, self.reads))
        after = [sum(read.length for read in own) for own in self.reads_P]
        segments_S, prompts_P, reads_P = (
            torch.tensor([0, *accumulate(parts)], dtype=torch.int32, device=self.device)
            for parts in ([*prompts, *reads], prompts, after)
        )
        longest = max(prompts + reads), max(prompts), max(after)
        return Spans(segments_S, prompts_P, reads_P, self.prompts[-1].stop, *longest)

    def _indices(self, parts: Sequence[Array]) -> Tensor:
        return torch.from_numpy(np.concatenate([_NONE, *parts])).to(self.device)


def pad(segments: Sequence[Segment]) -> tuple[Array, Array]:
    """Segments padded right: the packed position of each slot (padding repeats the start), and which slots are no padding."""
    starts, lengths = (np.array(column) for column in zip(*segments, strict=True))
    steps = np.arange(lengths.max())
    valid = steps < lengths[:, None]
    return (starts[:, None] + np.where(valid, steps, 0)).reshape(-1), valid.reshape(-1)


def similar(segments: Sequence[Segment], long: int, ratio: float) -> list[list[Segment]]:
    """Segments sorted by falling length and cut where a call would be padded too much, or be of one long segment alone."""
    buckets: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda segment: (-segment.length, segment.start)):
        longest = buckets[-1][0].length if buckets else 0
        if buckets and longest < long and segment.length >= ratio * longest:
            buckets[-1].append(segment)
        else:
            buckets.append([segment])
    return buckets
