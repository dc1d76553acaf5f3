"""One micro-batch as one unpadded sequence: every prompt once, then every response, and who may attend to whom."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gmc.scoring.plan import MicroBatch, input_tokens

LONG_SEGMENT = 256
"""A segment at least this long is attended alone; shorter ones of similar length share one padded kernel call."""

BUCKET_RATIO = 0.75
"""Segments share a call when the shortest has at least this share of the longest one's tokens."""


@dataclass(frozen=True)
class Bucket:
    """Segments (a prompt or a response) attended causally in one call, padded right to the longest.

    start: where the first segment starts. index: position in the packed sequence of each padded slot, flat, slots of one
    segment together; padding repeats the segment's start. slots: the slots that are no padding.
    """

    segments: int
    length: int
    start: int
    index: Tensor
    slots: Tensor


@dataclass(frozen=True)
class Prefix:
    """Responses [start, stop) of the packed sequence that read the prompt [prompt_start, prompt_stop).

    segments, length, index, slots: the responses padded right to the longest of them. index: position of each padded slot
    in the packed sequence; slots: the slot of each token start..stop-1.
    """

    prompt_start: int
    prompt_stop: int
    start: int
    stop: int
    segments: int
    length: int
    index: Tensor
    slots: Tensor


@dataclass(frozen=True)
class AttentionLayout:
    """Causal attention within each segment (buckets) plus each response's attention to its prompt (prefixes).

    prompts: [start, stop) of each prompt; they come first and in order, then the responses of the prefixes in order.
    restore: for each packed position, its slot in the concatenation of all buckets.
    """

    prompts: tuple[tuple[int, int], ...]

    buckets: tuple[Bucket, ...]
    prefixes: tuple[Prefix, ...]
    restore: Tensor


@dataclass(frozen=True)
class Packed:
    """A packed micro-batch of N input tokens that predicts R response tokens.

    input_ids_N, position_ids_N: the sequence. predict_R: the position whose hidden state predicts each response token.
    targets_R: that token. rows_R, columns_R: its place in a [B, T] tensor.
    """

    input_ids_N: Tensor
    position_ids_N: Tensor
    predict_R: Tensor
    targets_R: Tensor
    rows_R: Tensor
    columns_R: Tensor
    layout: AttentionLayout


def pack(
    micro_batch: MicroBatch,
    prompts_P: Sequence[Sequence[int]],
    responses_PG: Sequence[Sequence[Sequence[int]]],
    device: torch.device,
) -> Packed:
    """Lay a micro-batch out as one sequence: prompts first, then the responses piece by piece, without padding."""
    ids: list[int] = []
    positions: list[Tensor] = []
    prompts: list[tuple[int, int]] = []
    for piece in micro_batch.pieces:
        prompt = prompts_P[piece.group]
        prompts.append((len(ids), len(ids) + len(prompt)))
        positions.append(torch.arange(len(prompt)))
        ids.extend(prompt)
    segments = [(start, stop - start) for start, stop in prompts]
    prefixes: list[Prefix] = []
    predict: list[Tensor] = []
    targets: list[int] = []
    rows: list[int] = []
    lengths: list[int] = []
    for piece, (prompt_start, prompt_stop) in zip(micro_batch.pieces, prompts, strict=True):
        responses_G = responses_PG[piece.group]
        members: list[tuple[int, int]] = []
        for sample in piece.samples:
            response = responses_G[sample]
            read = input_tokens(len(response))
            predict.append(torch.tensor([prompt_stop - 1]))
            predict.append(torch.arange(len(ids), len(ids) + read))
            positions.append(torch.arange(read) + (prompt_stop - prompt_start))
            if read:
                members.append((len(ids), read))
            ids.extend(response[:read])
            targets.extend(response)
            rows.append(piece.group * len(responses_G) + sample)
            lengths.append(len(response))
        if members:
            index, slots = _pad(members)
            shape = (len(members), max(length for _, length in members))
            span = (prompt_start, prompt_stop, members[0][0], len(ids))
            prefixes.append(Prefix(*span, *shape, index.to(device), slots.to(device)))
            segments.extend(members)
    return Packed(
        input_ids_N=torch.tensor(ids, device=device),
        position_ids_N=torch.cat(positions).to(device),
        predict_R=torch.cat(predict).to(device),
        targets_R=torch.tensor(targets, device=device),
        rows_R=torch.repeat_interleave(torch.tensor(rows), torch.tensor(lengths)).to(device),
        columns_R=torch.cat([torch.arange(length) for length in lengths]).to(device),
        layout=_layout(tuple(prompts), segments, tuple(prefixes), device),
    )


def _layout(
    prompts: tuple[tuple[int, int], ...],
    segments: Sequence[tuple[int, int]],
    prefixes: tuple[Prefix, ...],
    device: torch.device,
) -> AttentionLayout:
    buckets: list[Bucket] = []
    restore = torch.empty(sum(length for _, length in segments), dtype=torch.long)
    first = 0
    for members in _similar(segments):
        index, slots = _pad(members)
        restore[index[slots]] = slots + first
        first += index.numel()
        buckets.append(Bucket(len(members), members[0][1], members[0][0], index.to(device), slots.to(device)))
    return AttentionLayout(prompts, tuple(buckets), prefixes, restore.to(device))


def _pad(members: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """Segments (start, length) padded right: the packed position of each slot (padding repeats the start), and the slots
    that are no padding."""
    starts = torch.tensor([start for start, _ in members])
    lengths = torch.tensor([length for _, length in members])
    steps = torch.arange(int(lengths.max()))
    valid = steps < lengths[:, None]
    index = torch.where(valid, starts[:, None] + steps, starts[:, None])
    return index.reshape(-1), valid.reshape(-1).nonzero().squeeze(1)


def _similar(segments: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Segments sorted by falling length and cut where a call would be padded too much."""
    buckets: list[list[tuple[int, int]]] = []
    for segment in sorted(segments, key=lambda item: (-item[1], item[0])):
        longest = buckets[-1][0][1] if buckets else 0
        if buckets and longest < LONG_SEGMENT and segment[1] >= BUCKET_RATIO * longest:
            buckets[-1].append(segment)
        else:
            buckets.append([segment])
    return buckets
