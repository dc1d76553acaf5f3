"""Sampling with the trainer's own network, in process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import Tensor

from gmc.config.settings import RunSettings
from gmc.engines.base import Completion, Engine, Partial, Sampling
from gmc.engines.decoding_choice import Decoding, choose_decoding
from gmc.engines.flight import Flight, flights
from gmc.engines.plain_probe import decodable_structure
from gmc.engines.plain_state import Blocks, PlainState
from gmc.engines.requests import check_requests
from gmc.engines.stopping import StopStrings
from gmc.errors import DataError, UsageError
from gmc.models import LanguageModel
from gmc.plain.decoder import PlainDecoder

CACHE_BYTES = 4 * 2**30
"""Key-value cache of the rows decoded at once, on a CPU. A GPU uses a quarter of its memory."""

FUSED_STEPS = "fused steps"

ROWS_AT_ONCE = 256
"""Rows of a decoding batch beyond which calls are a small part of a fused step."""


@dataclass(frozen=True)
class _Unit:
    """Samples first..first+count-1 of one prompt, decoded in one batch."""

    prompt: int
    first: int
    count: int


class TransformersEngine(Engine):
    """Samples with `model.network` itself, so it always holds the trainer's current weights.

    compute_dtype: autocast type (bfloat16), None for float32. cache_bytes: key-value memory of the rows decoded at once;
    None chooses by device. Whole groups go together where they fit. Raises `UsageError` for a network whose cached steps do not
    give the log-probs of its forward.
    """

    name = "transformers"
    summary = "the trainer's own network, in process"
    shares_weights = True
    extends = True
    version = transformers.__version__

    def __init__(
        self, model: LanguageModel, *, compute_dtype: torch.dtype | None = None, cache_bytes: int | None = None
    ) -> None:
        self._model = model
        self.context_tokens = model.context_tokens
        self._compute_dtype = compute_dtype
        self._cache_bytes = _default_cache_bytes(model.device) if cache_bytes is None else cache_bytes
        self._decoding = self._choose_decoding()
        self._stop_strings: dict[tuple[str, ...], StopStrings] = {}
        self._end_ids = torch.tensor(sorted(model.end_token_ids), dtype=torch.long, device=model.device)

    @classmethod
    def build(
        cls, settings: RunSettings, model: LanguageModel, *, compute_dtype: torch.dtype | None, log_file: Path
    ) -> "TransformersEngine":
        return cls(model, compute_dtype=compute_dtype)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        """Sample `group_size` responses to each prompt; `seeds` has one number a prompt.

        The same call gives the same bytes. Raises `UsageError` for an empty prompt, or one that leaves less than
        `sampling.max_tokens` of the model's context.
        """
        self._check(prompts, group_size, sampling, seeds)
        completions: list[list[Completion]] = [[] for _ in prompts]
        for units in self._batches(prompts, group_size, sampling.max_tokens):
            members = [(unit.prompt, unit.first + offset) for unit in units for offset in range(unit.count)]
            partials = [Partial(prompts[prompt], seeds[prompt], sample) for prompt, sample in members]
            self._flight(partials, [sampling.max_tokens] * len(partials), sampling).run(progress=progress)
            for (prompt, _), one in zip(members, partials, strict=True):
                completions[prompt].append(Completion(one.token_ids, one.logprobs, one.finish_reason))
        return completions

    def extend(
        self,
        partials: Sequence[Partial],
        limits: Sequence[int],
        *,
        sampling: Sampling,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Sample on, with the weights of now, until each response is finished or has `limits` tokens.

        Prefixes are read anew, those that several responses share once.
        """
        self._check([one.prompt for one in partials], 1, sampling, [one.seed for one in partials])
        going = [
            row
            for row, (one, limit) in enumerate(zip(partials, limits, strict=True))
            if not one.finish_reason and len(one.token_ids) < limit
        ]
        fresh = [row for row in going if not partials[row].token_ids]  # these share prompts, and the others nothing
        begun = [row for row in going if partials[row].token_ids]
        for rows in (fresh, begun):
            lengths = [len(partials[row].prompt) + limits[row] for row in rows]
            token_bytes = _token_bytes(self._model, self._compute_dtype)
            for batch in flights(lengths, token_bytes, self._cache_bytes, equal_lengths=self._decoding.equal_lengths):
                members = [rows[place] for place in batch]
                self._flight([partials[row] for row in members], [limits[row] for row in members], sampling).run(
                    progress=progress
                )

    def flight(self, partials: Sequence[Partial], *, sampling: Sampling) -> Flight:
        """All these responses in one flight, which pauses where it is told to. Raises `UsageError` when they are too many."""
        self._check([one.prompt for one in partials], 1, sampling, [one.seed for one in partials])
        lengths = [len(one.prompt) + sampling.max_tokens for one in partials]
        token_bytes = _token_bytes(self._model, self._compute_dtype)
        batches = list(flights(lengths, token_bytes, self._cache_bytes, equal_lengths=self._decoding.equal_lengths))
        if len(batches) > 1:
            raise UsageError(
                f"live.in_flight: {len(partials)} responses of {self._model.source} do not fit into one decoding batch "
                f"({len(batches)} are needed), so some would begin under later weights; lower rollout.prompts or "
                "rollout.max_tokens, or leave live.in_flight out"
            )
        return self._flight(partials, [sampling.max_tokens] * len(partials), sampling)

    def batches_at_once(self, rows: int) -> int:
        """For fused steps, whose calls cost as much for few rows as for many, as many as make `ROWS_AT_ONCE` rows."""
        return max(ROWS_AT_ONCE // rows, 1) if self._decoding.name == FUSED_STEPS else 1

    @property
    def decoding(self) -> str:
        """The way to decode that was found to be right for this network."""
        return self._decoding.name

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy these weights into the network. Raises `DataError` when a name or a shape does not fit."""
        parameters = dict(self._model.network.named_parameters())
        for name in sorted(parameters.keys() ^ weights.keys()):
            raise DataError(f"weights and model {self._model.source} differ: tensor {name} is in one of them only.")
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                shapes = f"{tuple(weights[name].shape)}, the model's {tuple(parameter.shape)}"
                raise DataError(f"weights do not fit model {self._model.source}: tensor {name} has shape {shapes}.")
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])

    def close(self) -> None:
        """Nothing is held between calls."""

    def _check(self, prompts: Sequence[Sequence[int]], group_size: int, sampling: Sampling, seeds: Sequence[int]) -> None:
        check_requests(prompts, group_size, sampling, seeds, self._model.context_tokens, self._model.source)

    def _batches(self, prompts: Sequence[Sequence[int]], group_size: int, max_tokens: int) -> Iterator[list[_Unit]]:
        """Samples to decode together, in order, by the memory of their cache, and by length where padding would be seen."""
        token_bytes = _token_bytes(self._model, self._compute_dtype)
        units: list[_Unit] = []
        rows, width = 0, 0
        for index, prompt in enumerate(prompts):
            room = max(self._cache_bytes // (token_bytes * (len(prompt) + max_tokens)), 1)
            for first in range(0, group_size, room):
                count = min(room, group_size - first)
                wider = max(width, len(prompt))
                full = (rows + count) * (wider + max_tokens) * token_bytes > self._cache_bytes
                unequal = self._decoding.equal_lengths and len(prompt) != width
                if units and (full or unequal):
                    yield units
                    units, rows, wider = [], 0, len(prompt)
                units.append(_Unit(index, first, count))
                rows, width = rows + count, wider
        if units:
            yield units

    def _flight(self, partials: Sequence[Partial], limits: Sequence[int], sampling: Sampling) -> Flight:
        stop = self._stop(sampling.stop)
        return Flight(self._model, self._decoding, partials, limits, sampling, stop, self._compute_dtype)

    def _choose_decoding(self) -> Decoding:
        """The fastest way to decode that is right for this network, with its weights of the moment a state is made."""
        plain = decodable_structure(self._model) if self._compute_dtype in (None, torch.float32) else None
        if plain is None:
            return choose_decoding(self._model)
        blocks, size = Blocks(), self._model.vocabulary_size
        return Decoding(FUSED_STEPS, lambda tokens: PlainState(lambda: PlainDecoder(plain, size), tokens, blocks))

    def _stop(self, stop: tuple[str, ...]) -> StopStrings | None:
        if not stop:
            return None
        if stop not in self._stop_strings:
            self._stop_strings[stop] = StopStrings(self._model.tokenizer, stop, self._model.vocabulary_size)
        return self._stop_strings[stop]


def _token_bytes(model: LanguageModel, compute_dtype: torch.dtype | None) -> int:
    """Key-value bytes of one token."""
    config = model.network.config.get_text_config()
    heads = config.num_attention_heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return 2 * int(config.num_hidden_layers) * int(key_heads) * int(head_dim) * (compute_dtype or torch.float32).itemsize


def _default_cache_bytes(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory // 4 if device.type == "cuda" else CACHE_BYTES
