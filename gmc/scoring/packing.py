"""One micro-batch as one unpadded sequence: every prompt once, then every response, and who may attend to whom."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from gmc.scoring.layout import AttentionLayout, Segment
from gmc.scoring.plan import Masks, MicroBatch, input_tokens, sampled_places


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
    reads: dict[int, list[Segment]] = {prompt.start: [] for prompt in prompts}
    for response in responses:
        if response.read.tokens:
            reads[response.prompt.start].append(_bounds(response.read))
    return AttentionLayout(tuple(map(_bounds, prompts)), tuple(map(tuple, reads.values())), device)


def _bounds(segment: _Segment) -> Segment:
    return Segment(segment.start, len(segment.tokens))
