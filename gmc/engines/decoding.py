"""Key-value caches of a decoding batch: each prompt is read once, repeated for its samples, and finished rows leave.

`FullAttentionState` writes into storage allocated once and needs a network in which every layer attends to the whole past.
`AnyState` works for every transformers cache (sliding windows, recurrent layers) and lets the network build its masks.
"""

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from gmc.models import LanguageModel, attention

GROUPED = "gmc_grouped_query"
"""The name under which transformers finds `grouped_query_attention`."""


class State(Protocol):
    """One decoding batch. Rows are numbered 0..rows-1; `keep` may reorder them."""

    def prefill(self, prompts: Sequence[Sequence[int]], samples: Sequence[int]) -> Tensor:
        """Read each prompt once and repeat it for its number of samples. Returns logits of the next token, row by row."""
        ...

    def step(self, tokens_B: Tensor) -> Tensor:
        """Append one token a row. Returns the logits of the next: logits_BV."""
        ...

    def keep(self, kept: Tensor) -> Tensor:
        """Drop the rows not in `kept` (ascending). Returns the old number of each row that is left, in their new order."""
        ...

    def renew(self) -> None:
        """Read what comes next with the network's weights of now; keys and values of what was read before stay."""
        ...


def grouped_query_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' "sdpa" attention without copying each key head for every query head that shares it.

    A mask of a single key means that every key is visible.
    """
    mask = None if attention_mask is None or attention_mask.shape[-1] != key.shape[2] else attention_mask
    grouped = query.shape[1] != key.shape[1]
    output = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=grouped)
    return output.transpose(1, 2), None


ALL_ATTENTION_FUNCTIONS.register(GROUPED, grouped_query_attention)


class _Layer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, in storage allocated for the whole generation."""

    keys: Tensor
    values: Tensor

    def __init__(self, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity = capacity
        self.length = 0
        self.rows = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values = (self._storage(states, states.shape[0]) for states in (key_states, value_states))
        self.rows, self.is_initialized = key_states.shape[0], True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        # Under autocast, keys come out of the rotary embedding in float32; they are cast once here, not at every step.
        key_states = key_states.to(value_states.dtype)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self.length = self.length, self.length + key_states.shape[2]
        self.keys[: self.rows, :, start : self.length] = key_states
        self.values[: self.rows, :, start : self.length] = value_states
        return self.keys[: self.rows, :, : self.length], self.values[: self.rows, :, : self.length]

    def repeat(self, counts: Tensor) -> None:
        self.rows = int(counts.sum())
        for name in ("keys", "values"):
            filled = getattr(self, name)[:, :, : self.length]
            storage = self._storage(filled, self.rows)
            storage[:, :, : self.length] = filled.repeat_interleave(counts, dim=0)
            setattr(self, name, storage)

    def move(self, source: Tensor, target: Tensor, rows: int) -> None:
        self.rows = rows
        for storage in (self.keys, self.values):
            filled = storage[:, :, : self.length]
            filled[target] = filled[source]

    def _storage(self, like: Tensor, rows: int) -> Tensor:
        return like.new_empty(rows, like.shape[1], self.capacity, like.shape[3])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.capacity


class FullAttentionState:
    """Prompts padded left into one block, then one column a token. Rows that finish are overwritten by the last ones."""

    def __init__(self, model: LanguageModel, max_tokens: int) -> None:
        self._network = model.network
        self._device = model.device
        self._max_tokens = max_tokens

    def prefill(self, prompts: Sequence[Sequence[int]], samples: Sequence[int]) -> Tensor:
        ids_PT, padding_P = padded_left(prompts, self._device)
        width = ids_PT.shape[1]
        config = self._network.config.get_text_config()
        self._layers = [_Layer(width + self._max_tokens) for _ in range(config.num_hidden_layers)]
        self._cache = Cache(layers=list(self._layers))
        steps = torch.arange(width, device=self._device)
        visible_PT = steps >= padding_P[:, None]
        causal_TT = steps[:, None] >= steps
        # A padding position sees itself, so that no softmax is empty; nothing reads what it computes.
        itself_TT = steps[:, None] == steps
        mask = (causal_TT & (visible_PT[:, None, :] | itself_TT)).unsqueeze(1)
        logits_PV = self._forward(ids_PT, (steps - padding_P[:, None]).clamp_min(0), mask)
        counts = torch.tensor(samples, device=self._device)
        for layer in self._layers:
            layer.repeat(counts)
        self._positions_B1 = (width - padding_P).repeat_interleave(counts).unsqueeze(1)
        padded = bool((padding_P > 0).any())
        self._mask: Tensor | None = None
        if padded:
            generated = visible_PT.new_ones((len(prompts), self._max_tokens))
            self._mask = torch.cat((visible_PT, generated), dim=1).repeat_interleave(counts, dim=0)[:, None, None, :]
        return logits_PV.repeat_interleave(counts, dim=0)

    def step(self, tokens_B: Tensor) -> Tensor:
        length = self._layers[0].length + 1
        mask = self._mask[..., :length] if self._mask is not None else tokens_B.new_zeros((1, 1, 1, 1), dtype=torch.bool)
        logits_BV = self._forward(tokens_B.unsqueeze(1), self._positions_B1, mask)
        self._positions_B1 += 1
        return logits_BV

    def keep(self, kept: Tensor) -> Tensor:
        order, source, target = rows_to_fill(kept)
        rows = len(kept)
        for layer in self._layers:
            layer.move(source, target, rows)
        self._positions_B1 = self._positions_B1[order]
        if self._mask is not None:
            self._mask = self._mask[order]
        return order

    def renew(self) -> None:
        """Nothing of the network is held here."""

    def _forward(self, ids_BT: Tensor, positions_BT: Tensor, mask: Tensor) -> Tensor:
        with attention(self._network, GROUPED):
            return _next_logits(self._network, self._cache, ids_BT, positions_BT, mask)


class AnyState:
    """Prompts padded left, transformers' own cache for the network, masks built by the network from the padding.

    masked: whether the network is told of padding; False for prompts of one length, which have none.
    """

    def __init__(self, model: LanguageModel, *, masked: bool = True) -> None:
        self._network = model.network
        self._masked = masked
        self._device = model.device

    def prefill(self, prompts: Sequence[Sequence[int]], samples: Sequence[int]) -> Tensor:
        repeated = [prompt for prompt, count in zip(prompts, samples, strict=True) for _ in range(count)]
        ids_BT, padding_B = padded_left(repeated, self._device)
        self._cache = DynamicCache(config=self._network.config)
        self._mask_BT = (torch.arange(ids_BT.shape[1], device=self._device) >= padding_B[:, None]).long()
        positions_BT = (self._mask_BT.cumsum(-1) - 1).clamp_min(0)
        return _next_logits(self._network, self._cache, ids_BT, positions_BT, self._mask_BT if self._masked else None)

    def step(self, tokens_B: Tensor) -> Tensor:
        self._mask_BT = torch.cat((self._mask_BT, self._mask_BT.new_ones((len(tokens_B), 1))), dim=1)
        positions_B1 = self._mask_BT.sum(-1, keepdim=True) - 1
        mask_BT = self._mask_BT if self._masked else None
        return _next_logits(self._network, self._cache, tokens_B.unsqueeze(1), positions_B1, mask_BT)

    def keep(self, kept: Tensor) -> Tensor:
        self._cache.reorder_cache(kept)  # type: ignore[arg-type]  # every kind of layer has it; recurrent ones cannot select
        self._mask_BT = self._mask_BT[kept]
        return kept

    def renew(self) -> None:
        """Nothing of the network is held here."""


def padded_left(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Prompts padded left to the longest: ids_PT, and which of them are padding, by its length: padding_P."""
    width = max(map(len, prompts))
    ids_PT = torch.tensor([[prompt[0]] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    return ids_PT, torch.tensor([width - len(prompt) for prompt in prompts], device=device)


def _cache_argument(network: PreTrainedModel) -> str:
    """What a network calls its cache; another name would be ignored, and every step would start anew."""
    return "cache_params" if "cache_params" in inspect.signature(network.forward).parameters else "past_key_values"


def _next_logits(network: PreTrainedModel, cache: Cache, ids_BT: Tensor, positions_BT: Tensor, mask: Tensor | None) -> Tensor:
    """Read these tokens into the cache. Returns the logits of the next: logits_BV."""
    output = network(
        input_ids=ids_BT,
        position_ids=positions_BT,
        attention_mask=mask,
        use_cache=True,
        logits_to_keep=1,
        **{_cache_argument(network): cache},
    )
    logits_BV: Tensor = output.logits[:, -1]
    return logits_BV


def rows_to_fill(kept: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Move the kept rows (ascending) to the front with the fewest copies: the old number of each row then, and which rows
    (source) go where (target)."""
    rows = len(kept)
    order = torch.arange(rows, device=kept.device)
    missing = torch.ones(rows, dtype=torch.bool, device=kept.device)
    missing[kept[kept < rows]] = False
    target, source = missing.nonzero().squeeze(1), kept[kept >= rows]
    order[target] = source
    return order, source, target
