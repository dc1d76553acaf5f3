"""One micro-batch as one unpadded sequence: every prompt once, then every response, and who may attend to whom."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gmc.scoring.plan import Masks, MicroBatch, input_tokens, sampled_places

Array = np.ndarray[Any, Any]
_NONE = np.empty(0, dtype=np.int64)

LONG_SEGMENT = 256
"""A segment at least this long is attended alone; shorter ones of similar length share one padded kernel call."""

BUCKET_RATIO = 0.75
"""Segments share a call when the shortest has at least this share of the longest one's tokens."""


@dataclass(frozen=True)
class Bucket:
    """Segments (a prompt or a response) attended causally in one call, padded right to the longest.

    start: of a single segment, where it starts in the packed sequence; of several, where their slots start among the `padded`
    ones of the layout, those of one segment together.
    """

    segments: int
    length: int
    start: int


@dataclass(frozen=True)
class Prefix:
    """Responses [start, stop) of the packed sequence that read the prompt [prompt_start, prompt_stop).

    starts, lengths: of each of them.
    """

    prompt_start: int
    prompt_stop: int
    start: int
    stop: int
    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    def padded(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The responses padded right to the longest: the packed position of each slot, the slot of each token start..stop-1."""
        index, valid = _pad(self.starts, self.lengths)
        return torch.from_numpy(index).to(device), torch.from_numpy(valid.nonzero()[0]).to(device)


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
    """Causal attention within each segment (buckets) plus each response's attention to its prompt (prefixes).

    prompts: [start, stop) of each prompt; they come first and in order, then the responses of the prefixes in order.
    padded: the packed position of every slot of the buckets that hold several segments, padding repeats its segment's start;
    padding: which of these slots are none. restore: for each packed position, its slot in the concatenation of all buckets.
    spans: for a variable-length kernel.
    """

    prompts: tuple[tuple[int, int], ...]
    buckets: tuple[Bucket, ...]
    prefixes: tuple[Prefix, ...]
    padded: Tensor
    padding: Tensor
    restore: Tensor
    spans: Spans


@dataclass(frozen=True)
class Packed:
    """A packed micro-batch of N input tokens that predicts R response tokens.

    input_ids_N, position_ids_N: the sequence. predict_R: the position whose hidden state predicts each response token.
    targets_R: that token. rows_R, columns_R: its place in a [B, T] tensor, which holds the sampled tokens of a response alone.
    """

    input_ids_N: Tensor
    position_ids_N: Tensor
    predict_R: Tensor
    targets_R: Tensor
    rows_R: Tensor
    columns_R: Tensor
    layout: AttentionLayout


@dataclass(frozen=True)
class _Segment:
    """What the network reads of a prompt or a response: its tokens stand together from `start` in the packed sequence."""

    start: int
    tokens: Sequence[int]
    position: int
    """Position id of the first token: how many tokens stand before it in its own text."""

    @property
    def stop(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True)
class _Response:
    """A response of the micro-batch: what is read of it (maybe nothing), after which prompt, and its row in [B, T].

    places: where in its tokens those stand that are predicted.
    """

    prompt: _Segment
    read: _Segment
    tokens: Sequence[int]
    places: Sequence[int]
    row: int


def pack(
    micro_batch: MicroBatch,
    prompts_P: Sequence[Sequence[int]],
    responses_PG: Sequence[Sequence[Sequence[int]]],
    device: torch.device,
    masks_PG: Masks = None,
) -> Packed:
    """Lay a micro-batch out as one sequence: prompts first, then the responses piece by piece, without padding.

    masks_PG: which tokens are predicted; those between, which an environment wrote, are read as context alone.
    """
    prompts: list[_Segment] = []
    stop = 0
    for piece in micro_batch.pieces:
        prompts.append(_Segment(stop, prompts_P[piece.group], 0))
        stop = prompts[-1].stop
    responses: list[_Response] = []
    for piece, prompt in zip(micro_batch.pieces, prompts, strict=True):
        responses_G = responses_PG[piece.group]
        for sample in piece.samples:
            tokens = responses_G[sample]
            read = _Segment(stop, tokens[: input_tokens(len(tokens))], len(prompt.tokens))
            places = sampled_places(len(tokens), None if masks_PG is None else masks_PG[piece.group][sample])
            responses.append(_Response(prompt, read, tokens, places, piece.group * len(responses_G) + sample))
            stop = read.stop
    segments = [*prompts, *(response.read for response in responses)]

    def ids(parts: Iterable[Iterable[int]]) -> Tensor:
        return torch.tensor([*chain.from_iterable(parts)], dtype=torch.long, device=device)

    return Packed(
        input_ids_N=ids(each.tokens for each in segments),
        position_ids_N=ids(range(each.position, each.position + len(each.tokens)) for each in segments),
        predict_R=ids(_predicting(response) for response in responses),
        targets_R=ids([each.tokens[place] for place in each.places] for each in responses),
        rows_R=ids([each.row] * len(each.places) for each in responses),
        columns_R=ids(range(len(each.places)) for each in responses),
        layout=_layout(prompts, responses, device),
    )


def _predicting(response: _Response) -> list[int]:
    """The positions that predict a response's sampled tokens: each one's predecessor, for the first the prompt's last."""
    before, last = response.read.start - 1, response.prompt.stop - 1
    return [before + place if place else last for place in response.places]


def _layout(prompts: Sequence[_Segment], responses: Sequence[_Response], device: torch.device) -> AttentionLayout:
    read = [response for response in responses if response.read.tokens]
    prefixes: list[Prefix] = []
    for prompt in prompts:
        members = [response.read for response in read if response.prompt is prompt]
        if members:
            span = (prompt.start, prompt.stop, members[0].start, members[-1].stop)
            prefixes.append(Prefix(*span, *_bounds(members)))
    segments = [*prompts, *(response.read for response in read)]
    buckets: list[Bucket] = []
    restore = np.empty(sum(len(segment.tokens) for segment in segments), dtype=np.int64)
    padded: list[Array] = []
    padding: list[Array] = []
    first = slot = 0
    for members in _similar(segments):
        index, valid = _pad(*_bounds(members))
        restore[index[valid]] = first + valid.nonzero()[0]
        first += len(index)
        several = len(members) > 1
        buckets.append(Bucket(len(members), len(members[0].tokens), slot if several else members[0].start))
        if several:
            padded.append(index)
            padding.append(slot + (~valid).nonzero()[0])
            slot += len(index)
    bounds = tuple((prompt.start, prompt.stop) for prompt in prompts)
    slots, empty, order = (
        torch.from_numpy(np.concatenate([_NONE, *parts])).to(device) for parts in (padded, padding, [restore])
    )
    return AttentionLayout(bounds, tuple(buckets), tuple(prefixes), slots, empty, order, _spans(prompts, read, device))


def _bounds(members: Sequence[_Segment]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(member.start for member in members), tuple(len(member.tokens) for member in members)


def _spans(prompts: Sequence[_Segment], read: Sequence[_Response], device: torch.device) -> Spans:
    prompt_lengths = [len(prompt.tokens) for prompt in prompts]
    read_lengths = [sum(len(each.read.tokens) for each in read if each.prompt is prompt) for prompt in prompts]
    lengths = [*prompt_lengths, *(len(response.read.tokens) for response in read)]
    segments, after_prompts, after_reads = (
        torch.tensor([0, *accumulate(parts)], dtype=torch.int32, device=device)
        for parts in (lengths, prompt_lengths, read_lengths)
    )
    longest = (max(lengths), max(prompt_lengths), max(read_lengths))
    return Spans(segments, after_prompts, after_reads, prompts[-1].stop, *longest)


def _pad(starts: Sequence[int], lengths: Sequence[int]) -> tuple[Array, Array]:
    """Segments padded right: the packed position of each slot (padding repeats the start), and which slots are no padding."""
    steps = np.arange(max(lengths))
    valid = steps < np.array(lengths)[:, None]
    return (np.array(starts)[:, None] + np.where(valid, steps, 0)).reshape(-1), valid.reshape(-1)


def _similar(segments: Sequence[_Segment]) -> list[list[_Segment]]:
    """Segments sorted by falling length and cut where a call would be padded too much."""
    buckets: list[list[_Segment]] = []
    for segment in sorted(segments, key=lambda segment: (-len(segment.tokens), segment.start)):
        longest = len(buckets[-1][0].tokens) if buckets else 0
        if buckets and longest < LONG_SEGMENT and len(segment.tokens) >= BUCKET_RATIO * longest:
            buckets[-1].append(segment)
        else:
            buckets.append([segment])
    return buckets
