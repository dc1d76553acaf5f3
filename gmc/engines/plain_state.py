"""A decoding batch of a small plain network on a CPU, where the calls of a stock decode step cost more than its arithmetic.

The samples of a prompt read one copy of its keys and values, in one matrix product for all of them; what they have said
themselves lies in a block of its own, a layer one, allocated once.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gmc.engines.decoding import padded_left, rows_to_fill
from gmc.plain.decoder import PlainDecoder

KEPT_BYTES = 256 * 2**20
"""The most memory that is kept from one batch to the next. Fresh memory costs a page fault for every 4 KiB."""


class Blocks:
    """Memory for the keys and values of a batch, used again by the next."""

    def __init__(self) -> None:
        self._kept: list[Tensor] = []

    def take(self, count: int, shape: tuple[int, ...]) -> list[Tensor]:
        """That many blocks of unspecified content; they belong to the caller until the next call."""
        size = math.prod(shape)
        if len(self._kept) == count and self._kept[0].numel() >= size:
            return [block[:size].view(shape) for block in self._kept]
        fresh = [torch.empty(size) for _ in range(count)]
        self._kept = fresh if count * fresh[0].nbytes <= KEPT_BYTES else []
        return [block.view(shape) for block in fresh]


@dataclass(frozen=True)
class _Slots:
    """The B rows laid out by prompt, S slots each, for every one of K key heads.

    gather: for slot (prompt, key head, s) in this order, the place of its row in [B, K]; an empty slot repeats row 0.
    scatter: for each place in [B, K], its slot.
    """

    per_prompt: int
    gather: Tensor
    scatter: Tensor


class PlainState:
    """Prompts padded left into one block, then one column a token. Rows that finish are overwritten by the last ones.

    make_decoder: gives a decoder that holds the weights of that moment.
    """

    def __init__(self, make_decoder: Callable[[], PlainDecoder], max_tokens: int, blocks: Blocks) -> None:
        self._make_decoder = make_decoder
        self._decoder = make_decoder()
        self._max_tokens = max_tokens
        self._blocks = blocks
        self._said = 0

    def prefill(self, prompts: Sequence[Sequence[int]], samples: Sequence[int]) -> Tensor:
        """Read each prompt once. Returns logits of the next token, row by row."""
        decoder = self._decoder
        ids_PW, padding_P = padded_left(prompts, torch.device("cpu"))
        prompt_count, width = ids_PW.shape
        self._rotations_T1C = decoder.rotations(width + self._max_tokens)
        steps = torch.arange(width)
        visible_PW = steps >= padding_P[:, None]
        # A padding position sees itself, so that no softmax is empty; nothing reads what it computes.
        mask_P1WW = (visible_PW[:, None, :] & (steps[:, None] >= steps) | (steps[:, None] == steps)).unsqueeze(1)
        rotations_N1C = self._rotations_T1C[(steps - padding_P[:, None]).clamp_min(0).reshape(-1)]
        self._prompt_keys: list[Tensor] = []
        self._prompt_values: list[Tensor] = []

        def attend(layer: int, query_NHC: Tensor, key_NKC: Tensor, value_NKD: Tensor) -> Tensor:
            query, key = (torch.view_as_real(part * rotations_N1C).flatten(2) for part in (query_NHC, key_NKC))
            query, key, value = (
                part.view(prompt_count, width, -1, decoder.head_dim).transpose(1, 2) for part in (query, key, value_NKD)
            )
            self._prompt_keys.append(key.flatten(0, 1).transpose(1, 2))
            self._prompt_values.append(value.flatten(0, 1))
            grouped = decoder.heads != decoder.key_heads
            output = scaled_dot_product_attention(query, key, value, attn_mask=mask_P1WW, scale=1.0, enable_gqa=grouped)
            return output.transpose(1, 2).flatten(0, 1).flatten(1)

        hidden_NE = decoder.body(ids_PW.reshape(-1), attend)
        counts_P = torch.tensor(samples)
        shape = (sum(samples), decoder.key_heads, self._max_tokens, decoder.head_dim)
        blocks = self._blocks.take(2 * decoder.layers, shape)
        self._keys, self._values = blocks[::2], blocks[1::2]
        self._key_pairs = [torch.view_as_complex(block.view(*block.shape[:3], -1, 2)) for block in self._keys]
        self._prompt_B = torch.arange(prompt_count).repeat_interleave(counts_P)
        self._positions_B = (width - padding_P)[self._prompt_B]
        self._slots = _laid_out(self._prompt_B, prompt_count, decoder.key_heads)
        bias_PW = torch.zeros(ids_PW.shape).masked_fill_(~visible_PW, -torch.inf)
        self._bias_N1W = bias_PW.repeat_interleave(decoder.key_heads, dim=0).unsqueeze(1)
        return decoder.logits(hidden_NE[width - 1 :: width])[self._prompt_B]

    def step(self, tokens_B: Tensor) -> Tensor:
        """Append one token a row. Returns the logits of the next: logits_BV."""
        rotations_B1C = self._rotations_T1C[self._positions_B]
        rows, last = len(tokens_B), self._said
        self._said = last + 1

        def attend(layer: int, query_NHC: Tensor, key_NKC: Tensor, value_NKD: Tensor) -> Tensor:
            keys_NTD, values_NTD = self._keys[layer][:rows].flatten(0, 1), self._values[layer][:rows].flatten(0, 1)
            torch.mul(key_NKC, rotations_B1C, out=self._key_pairs[layer][:rows, :, last])
            self._values[layer][:rows, :, last] = value_NKD
            query_NGD = torch.view_as_real(query_NHC * rotations_B1C).view(len(keys_NTD), -1, keys_NTD.shape[2])
            return self._attention(layer, query_NGD, keys_NTD, values_NTD).view(rows, -1)

        logits_BV = self._decoder.logits(self._decoder.body(tokens_B, attend))
        self._positions_B += 1
        return logits_BV

    def keep(self, kept: Tensor) -> Tensor:
        """Drop the rows not in `kept` (ascending). Returns the old number of each row that is left, in their new order."""
        order, source, target = rows_to_fill(kept)
        for block in (*self._keys, *self._values):
            filled = block[:, :, : self._said]
            filled[target] = filled[source]
        self._positions_B, self._prompt_B = self._positions_B[order], self._prompt_B[order]
        prompts = self._bias_N1W.shape[0] // self._decoder.key_heads
        self._slots = _laid_out(self._prompt_B, prompts, self._decoder.key_heads)
        return order

    def renew(self) -> None:
        """Take over the network's weights of now."""
        self._decoder = self._make_decoder()

    def _attention(self, layer: int, query_NGD: Tensor, keys_NMD: Tensor, values_NMD: Tensor) -> Tensor:
        """G queries of each of N = B·K key heads over the prompt and what was said since: output_NGD."""
        slots, width = self._slots, self._bias_N1W.shape[2]
        group, head_dim = query_NGD.shape[1:]
        by_prompt = (self._bias_N1W.shape[0], slots.per_prompt * group)
        asked = query_NGD.index_select(0, slots.gather).view(*by_prompt, head_dim)
        scores = torch.baddbmm(self._bias_N1W, asked, self._prompt_keys[layer])
        of_prompt_NGW = scores.view(-1, group, width).index_select(0, slots.scatter)
        of_said = torch.bmm(query_NGD, keys_NMD[:, : self._said].transpose(1, 2))
        shares = torch.cat((of_prompt_NGW, of_said), dim=2).softmax(-1)
        prompt_shares = shares[:, :, :width].index_select(0, slots.gather).view(*by_prompt, width)
        output = torch.bmm(prompt_shares, self._prompt_values[layer]).view(-1, group, head_dim)
        return torch.baddbmm(output.index_select(0, slots.scatter), shares[:, :, width:], values_NMD[:, : self._said])


def _laid_out(prompt_B: Tensor, prompts: int, key_heads: int) -> _Slots:
    order = prompt_B.argsort(stable=True)
    counts_P = prompt_B.bincount(minlength=prompts)
    per_prompt = int(counts_P.max())
    sorted_B = prompt_B[order]
    rank_B = torch.arange(len(order)) - (counts_P.cumsum(0) - counts_P)[sorted_B]
    heads_K = torch.arange(key_heads)
    row_PS = torch.zeros(prompts, per_prompt, dtype=torch.long)
    row_PS[sorted_B, rank_B] = order
    slot_BK = torch.empty(len(order), key_heads, dtype=torch.long)
    slot_BK[order] = (sorted_B[:, None] * key_heads + heads_K) * per_prompt + rank_B[:, None]
    gather_PKS = row_PS[:, None, :] * key_heads + heads_K[:, None]
    return _Slots(per_prompt, gather_PKS.reshape(-1), slot_BK.reshape(-1))
