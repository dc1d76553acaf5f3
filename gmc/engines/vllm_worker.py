"""What runs inside vLLM's workers: taking new weights, proving them, and keeping padded ids from being sampled.

Imported by vLLM under these names; it needs the `vllm` extra.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as LogitsProcessorV2

from gmc.engines.vllm_proof import differing_weights

EXTENSION = f"{__name__}.WeightsExtension"
VOCABULARY_MASK = f"{__name__}:VocabularyMask"
VOCABULARY_KEY = "gmc_vocabulary_size"
ABSENT_KEY = "gmc_absent_ids"


class WeightsExtension:
    """Methods added to vLLM's worker class; called by name on every worker."""

    model_runner: Any

    def gmc_take_weights(self, weights: Mapping[str, Tensor] | str) -> None:
        """Load weights in place, from tensors of this process or from a safetensors file.

        vLLM's own reload renews what a layer packed when it was loaded, but not the head of a model that ties it to the
        embedding: on a CPU that head keeps a packed copy of the old embedding. It is packed again here.
        """
        self.model_runner.reload_weights(weights_iterator=_pairs(weights))
        _repack_heads(self.model_runner.get_model())

    def gmc_about(self) -> dict[str, Any]:
        """What a client must know of a server before it samples."""
        config = self.model_runner.vllm_config
        own = config.additional_config or {}
        return {
            "logprobs_mode": config.model_config.logprobs_mode,
            "max_model_len": config.model_config.max_model_len,
            "vocabulary_size": own.get(VOCABULARY_KEY),
            "absent_ids": list(own.get(ABSENT_KEY, ())),
        }

    def gmc_take_mark(self, mark: str) -> None:
        """Remember which weights these are; a worker that is started anew does not know."""
        self._gmc_mark = mark

    def gmc_mark(self) -> str:
        """The mark of the weights held, "" for those of the start."""
        return getattr(self, "_gmc_mark", "")

    def gmc_differing_weights(self, weights: Mapping[str, Tensor] | str, tied: Mapping[str, str], seed: int) -> dict[str, Any]:
        """`differing_weights` of this worker's network. tied: name of a tensor that may be missing to the one it then equals:
        transformers names a head's tie also where the config unties it."""
        given = dict(_pairs(weights))
        given |= {name: given[source] for name, source in tied.items() if source in given and name not in given}
        return differing_weights(self.model_runner.get_model(), given, seed)


class VocabularyMask(LogitsProcessor, LogitsProcessorV2):  # type: ignore[misc]  # vLLM is not installed where types are checked
    """Gives ids that are no token probability zero: those beyond the tokenizer's vocabulary, and those it leaves out.

    vLLM has two model runners, each with its own base class, and refuses the other's; which one runs depends on Triton, on
    the configuration and on the environment. This class is both, so nothing has to be foretold.
    """

    def __init__(self, vllm_config: Any, *_: Any) -> None:
        self._size = int(vllm_config.additional_config[VOCABULARY_KEY])
        self._absent = torch.tensor(vllm_config.additional_config.get(ABSENT_KEY, ()), dtype=torch.long)

    def apply(self, logits: Tensor, _context: Any = None) -> Tensor:
        """The second runner passes the layout of the batch too, which does not matter here. logits: [rows, V]."""
        logits[:, self._size :] = -torch.inf
        if len(self._absent):
            self._absent = self._absent.to(logits.device)
            logits.index_fill_(1, self._absent, -torch.inf)
        return logits

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        pass


def _repack_heads(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, VocabParallelEmbedding) and hasattr(module, "cpu_linear"):
            module.quant_method.process_weights_after_loading(module)


def _pairs(weights: Mapping[str, Tensor] | str) -> Iterator[tuple[str, Tensor]]:
    if not isinstance(weights, str):
        yield from weights.items()
        return
    with safe_open(Path(weights), framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a dict)
            yield name, file.get_tensor(name)
