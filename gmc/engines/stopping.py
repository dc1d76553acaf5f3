"""When a response ends: end ids and stop strings."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase


class StopStrings:
    """Finds the responses that a newly sampled token completes to one of the stop strings.

    A token can complete a stop string only if its own text holds the string's last character (or an incomplete character),
    so almost every token is dismissed by one table look-up and only the rest are decoded.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str], vocabulary_size: int) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        last = {text[-1] for text in self._stop} | {"\N{REPLACEMENT CHARACTER}"}
        texts = tokenizer.batch_decode([[index] for index in range(vocabulary_size)], skip_special_tokens=False)
        self._candidates = [any(character in text for character in last) for text in texts]

    def ended(self, responses: Sequence[Sequence[int]]) -> list[bool]:
        """For each response (token ids, the new one last): does its text hold a stop string?"""
        return [self._candidates[response[-1]] and self._holds(response) for response in responses]

    def _holds(self, response: Sequence[int]) -> bool:
        text = self._tokenizer.decode(list(response), skip_special_tokens=False)
        return any(stop in text for stop in self._stop)


def is_end(tokens_B: Tensor, end_ids_E: Tensor) -> Tensor:
    """Which tokens are end-of-sequence ids: ended_B."""
    return (tokens_B.unsqueeze(1) == end_ids_E).any(-1) if end_ids_E.numel() else torch.zeros_like(tokens_B, dtype=torch.bool)
