"""Responses on their way: sampled for a while, left, and gone on with, under the same weights or others."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from gmc.config.sampling import Sampling
from gmc.engines.base import Ongoing, Partial
from gmc.engines.decoding import State
from gmc.engines.decoding_choice import Decoding
from gmc.engines.rows import Rows
from gmc.engines.sampling import next_tokens, uniform_noise
from gmc.engines.stopping import StopStrings
from gmc.models import LanguageModel, autocast, without_ids


def never() -> bool:
    """Nothing calls for a pause."""
    return False


class Flight(Ongoing):
    """N unfinished responses decoded together, token by token.

    A token's noise belongs to its seed, sample and place, so what is sampled does not depend on where a flight paused, up to
    rounding. limits: how many tokens each may have when the flight ends; one that has `sampling.max_tokens` is finished.
    """

    def __init__(
        self,
        model: LanguageModel,
        decoding: Decoding,
        partials: Sequence[Partial],
        limits: Sequence[int],
        sampling: Sampling,
        stop_strings: StopStrings | None,
        compute_dtype: torch.dtype | None,
    ) -> None:
        self._model, self._decoding, self._sampling = model, decoding, sampling
        self._partials, self._limits, self._compute_dtype = list(partials), list(limits), compute_dtype
        self._stop_strings = stop_strings
        self._end_ids = torch.tensor(sorted(model.end_token_ids), dtype=torch.long, device=model.device)
        self._state: State | None = None
        self._last_B: Tensor | None = None

    def run(self, pause: Callable[[], bool] = never, progress: Callable[[int], None] | None = None) -> bool:
        """Sample until every response is finished or at its limit; False when `pause`, asked after every token, said so before.

        progress: called with the number of newly finished responses.
        """
        if not self._going():
            return True
        with torch.inference_mode(), autocast(self._model.network, self._compute_dtype):
            logits_BV = self._begin() if self._state is None or self._last_B is None else self._state.step(self._last_B)
            return self._decode(logits_BV, pause, progress)

    def renew(self, *, keep_cache: bool) -> None:
        """As `Ongoing.renew`."""
        if keep_cache and self._state is not None:
            self._state.renew()
        else:
            self._state = None

    def _going(self) -> list[int]:
        """The responses that may have another token, by their place."""
        pairs = zip(self._partials, self._limits, strict=True)
        return [place for place, (one, limit) in enumerate(pairs) if not one.finish_reason and len(one.token_ids) < limit]

    def _begin(self) -> Tensor:
        """Read every prefix once. Returns the logits of the next token, row by row."""
        self._places = self._going()
        going = [self._partials[place] for place in self._places]
        room = [self._limits[place] - len(self._partials[place].token_ids) for place in self._places]
        self._room_N = torch.tensor(room, device=self._model.device) if min(room) < max(room) else None
        self._steps, self._done = max(room), 0
        ends = [len(one.token_ids) + self._steps for one in going]
        noise_NT = uniform_noise([one.seed for one in going], [one.sample for one in going], max(ends))
        own = [noise_T[end - self._steps : end] for noise_T, end in zip(noise_NT, ends, strict=True)]
        seen_BV = self._seen(going) if self._sampling.repetition_penalty != 1 else None
        said = [list(one.token_ids) for one in going]
        self._rows = Rows(torch.stack(own).T.to(self._model.device), seen_BV, self._end_ids, self._stop_strings, said)
        prefixes = [(prefix, len(list(same))) for prefix, same in groupby(one.prefix for one in going)]
        self._state = self._decoding.make(self._steps)
        return self._state.prefill([prefix for prefix, _ in prefixes], [count for _, count in prefixes])

    def _decode(self, logits_BV: Tensor, pause: Callable[[], bool], progress: Callable[[int], None] | None) -> bool:
        rows, state, model = self._rows, self._state, self._model
        assert state is not None
        while True:
            logits_BV = without_ids(logits_BV[:, : model.vocabulary_size], model.absent_ids)
            tokens_B, logp_B = next_tokens(logits_BV, rows.noise_TN[self._done][rows.sample_B], self._sampling, rows.seen_BV)
            ended_B = rows.append(tokens_B, logp_B)
            self._done += 1
            left_B = ended_B if self._room_N is None else ended_B | (self._room_N[rows.sample_B] <= self._done)
            if bool(left_B.any()):
                kept = rows.stop(ended_B, left_B)
                if progress:
                    progress(int(ended_B.sum()))
                if not len(kept):
                    break
                order = state.keep(kept)
                rows.reorder(order)
                tokens_B = tokens_B[order]
            if self._done == self._steps:
                break
            self._last_B = tokens_B
            if pause():
                self._write()
                return False
            logits_BV = state.step(tokens_B)
        self._write()
        if progress:
            progress(sum(one.finish_reason == "length" for one in (self._partials[place] for place in self._places)))
        return True

    def _write(self) -> None:
        """Put what was sampled since the last time into the responses."""
        for place, (tokens, logprobs, stopped) in zip(self._places, self._rows.sampled(), strict=True):
            one = self._partials[place]
            one.token_ids += tokens
            one.logprobs += logprobs
            if stopped:
                one.finish_reason = "stop"
            elif len(one.token_ids) >= self._sampling.max_tokens:
                one.finish_reason = "length"

    def _seen(self, going: Sequence[Partial]) -> Tensor:
        seen_BV = torch.zeros(len(going), self._model.vocabulary_size, dtype=torch.bool, device=self._model.device)
        for row, one in enumerate(going):
            seen_BV[row, torch.tensor(one.prefix, device=seen_BV.device)] = True
        return seen_BV


def flights(lengths: Sequence[int], token_bytes: int, cache_bytes: int, *, equal_lengths: bool) -> Iterator[list[int]]:
    """Which rows are decoded together, in order, by the memory of their cache, and by length where padding would be seen.

    lengths: tokens that each row may come to, prefix included, and None of them more than the model's context.
    """
    batch: list[int] = []
    width = 0
    for row, length in enumerate(lengths):
        wider = max(width, length)
        full = (len(batch) + 1) * wider * token_bytes > cache_bytes
        if batch and (full or (equal_lengths and length != width)):
            yield batch
            batch, wider = [], length
        batch.append(row)
        width = wider
    if batch:
        yield batch
