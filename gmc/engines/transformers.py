"""Sampling with the trainer's own network, in process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import Tensor

from gmc.config.settings import RunSettings
from gmc.engines.base import Completion, Engine, Sampling
from gmc.engines.decoding_choice import Decoding, choose_decoding
from gmc.engines.plain_probe import decodable_structure
from gmc.engines.plain_state import Blocks, PlainState
from gmc.engines.rows import Rows
from gmc.engines.sampling import next_tokens, uniform_noise
from gmc.engines.stopping import StopStrings
from gmc.errors import DataError, UsageError
from gmc.models import LanguageModel, autocast, without_ids
from gmc.plain.decoder import PlainDecoder

CACHE_BYTES = 4 * 2**30
"""Key-value cache of the rows decoded at once, on a CPU. A GPU uses a quarter of its memory."""


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
    version = transformers.__version__

    def __init__(
        self, model: LanguageModel, *, compute_dtype: torch.dtype | None = None, cache_bytes: int | None = None
    ) -> None:
        self._model = model
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
            with torch.inference_mode(), autocast(self._model.network, self._compute_dtype):
                decoded = self._decode(units, prompts, sampling, seeds, progress or _silent)
            for unit in units:
                completions[unit.prompt].extend(next(decoded) for _ in range(unit.count))
        return completions

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
        if len(seeds) != len(prompts):
            raise UsageError(f"{len(seeds)} seeds for {len(prompts)} prompts: one a prompt is needed.")
        if group_size < 1 or sampling.max_tokens < 1 or sampling.temperature < 0:
            raise UsageError(
                f"group size {group_size}, max tokens {sampling.max_tokens}, temperature {sampling.temperature}: "
                "sizes start at 1, temperature at 0."
            )
        context = self._model.context_tokens
        for index, prompt in enumerate(prompts):
            if not prompt:
                raise UsageError(f"prompt {index} is empty: sampling needs at least one token to start from.")
            if context is not None and len(prompt) + sampling.max_tokens > context:
                raise UsageError(
                    f"prompt {index} has {len(prompt)} tokens; with max_tokens = {sampling.max_tokens} that exceeds the "
                    f"context of {context} tokens of {self._model.source}. Lower max_tokens or leave this problem out."
                )

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

    def _decode(
        self,
        units: Sequence[_Unit],
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        seeds: Sequence[int],
        progress: Callable[[int], None],
    ) -> Iterator[Completion]:
        """Decode one batch of rows to the end; completions in the order of the units' samples."""
        members = [(unit.prompt, unit.first + offset) for unit in units for offset in range(unit.count)]
        prompts_N, samples_N = zip(*members, strict=True)
        noise_NT = uniform_noise([seeds[prompt] for prompt in prompts_N], samples_N, sampling.max_tokens)
        seen_BV = self._seen([prompts[prompt] for prompt in prompts_N]) if sampling.repetition_penalty != 1 else None
        rows = Rows(noise_NT.T.to(self._model.device), seen_BV, self._end_ids, self._stop(sampling.stop))
        state = self._decoding.make(sampling.max_tokens)
        logits_BV = state.prefill([prompts[unit.prompt] for unit in units], [unit.count for unit in units])
        for token in range(sampling.max_tokens):
            logits_BV = without_ids(logits_BV[:, : self._model.vocabulary_size], self._model.absent_ids)
            tokens_B, logp_B = next_tokens(logits_BV, rows.noise_TN[token][rows.sample_B], sampling, rows.seen_BV)
            ended_B = rows.append(tokens_B, logp_B)
            if bool(ended_B.any()):
                progress(int(ended_B.sum()))
                kept = rows.stop(ended_B)
                if not len(kept):
                    break
                order = state.keep(kept)
                rows.reorder(order)
                tokens_B = tokens_B[order]
            if token + 1 < sampling.max_tokens:
                logits_BV = state.step(tokens_B)
        else:
            progress(len(rows.sample_B))
        return rows.completions()

    def _choose_decoding(self) -> Decoding:
        """The fastest way to decode that is right for this network, with its weights of the moment a state is made."""
        plain = decodable_structure(self._model) if self._compute_dtype in (None, torch.float32) else None
        if plain is None:
            return choose_decoding(self._model)
        blocks, size = Blocks(), self._model.vocabulary_size
        return Decoding("fused steps", lambda tokens: PlainState(PlainDecoder(plain, size), tokens, blocks))

    def _seen(self, prompts_B: Sequence[Sequence[int]]) -> Tensor:
        seen_BV = torch.zeros(len(prompts_B), self._model.vocabulary_size, dtype=torch.bool, device=self._model.device)
        for row, prompt in enumerate(prompts_B):
            seen_BV[row, torch.tensor(list(prompt), device=seen_BV.device)] = True
        return seen_BV

    def _stop(self, stop: tuple[str, ...]) -> StopStrings | None:
        if not stop:
            return None
        if stop not in self._stop_strings:
            self._stop_strings[stop] = StopStrings(self._model.tokenizer, stop, self._model.vocabulary_size)
        return self._stop_strings[stop]


def _silent(done: int) -> None:
    """Nobody watches."""


def _token_bytes(model: LanguageModel, compute_dtype: torch.dtype | None) -> int:
    """Key-value bytes of one token."""
    config = model.network.config.get_text_config()
    heads = config.num_attention_heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return 2 * int(config.num_hidden_layers) * int(key_heads) * int(head_dim) * (compute_dtype or torch.float32).itemsize


def _default_cache_bytes(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory // 4 if device.type == "cuda" else CACHE_BYTES
