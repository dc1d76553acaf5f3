"""Sampling with vLLM, which holds its own copy of the weights; every hand-over of weights is proved, number by number."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from gmc.config.settings import RunSettings
from gmc.engines.base import Completion, Engine, Sampling
from gmc.engines.probe import FLOORS, ProbeResult, compare_probe, probe_ids, reference_logprobs
from gmc.engines.requests import check_vllm_requests, spread_seed
from gmc.engines.vllm_proof import compared_share
from gmc.engines.vllm_start import start_vllm, vllm_version
from gmc.errors import DataError, GmcError
from gmc.loading.adapter import merged_weights
from gmc.models import LanguageModel


class VllmEngine(Engine):
    """vLLM in this process, or with one worker process a GPU when `tensor_parallel` is above 1.

    model: gives architecture, tokenizer, end ids, the first weights, and the forward pass that each hand-over is checked
    against. compute_dtype: dtype of the engine's weights and arithmetic, None for float32. log_file: takes everything vLLM
    prints. memory_share: share of the GPU's memory that vLLM may take. max_model_len: longest prompt and response together;
    None takes what the model and the memory allow. Raises `UsageError` when vLLM is not installed, `GmcError` when it does
    not start.
    """

    name = "vllm"
    summary = "vLLM, with its own copy of the weights"
    shares_weights = False
    takes_adapters = True
    takes_memory_share = True
    follower_transfers = ("folder", "nccl")
    own_processes = True
    at_once = 2

    def __init__(
        self,
        model: LanguageModel,
        *,
        compute_dtype: torch.dtype | None = None,
        log_file: Path,
        tensor_parallel: int = 1,
        memory_share: float = 0.5,
        max_model_len: int | None = None,
    ) -> None:
        self.version = vllm_version()
        self._model = model
        self._log_file = log_file
        self._floor = FLOORS[torch.bfloat16 if model.quantized else compute_dtype or torch.float32]
        self._in_process = tensor_parallel == 1
        self._probes = probe_ids(model.vocabulary_size, model.context_tokens)
        self._reference: Tensor | None = None
        self._usual_rms: float | None = None
        self._calls = self._handovers = 0
        self.proved_share: float | None = None
        self._finished: dict[str, Any] = {}
        self._llm: Any = start_vllm(
            model,
            dtype=compute_dtype or torch.float32,
            log_file=log_file,
            tensor_parallel=tensor_parallel,
            memory_share=memory_share,
            max_model_len=max_model_len,
        )
        self.context_tokens = self.max_model_len
        self.load_weights(model.weights())

    @classmethod
    def build(
        cls, settings: RunSettings, model: LanguageModel, *, compute_dtype: torch.dtype | None, log_file: Path
    ) -> "VllmEngine":
        return cls(
            model,
            compute_dtype=compute_dtype,
            log_file=log_file,
            tensor_parallel=settings.rollout.tensor_parallel,
            memory_share=settings.rollout.gpu_memory_share,
        )

    @property
    def max_model_len(self) -> int:
        """Longest prompt and response together, in tokens."""
        return int(self._llm.llm_engine.model_config.max_model_len)

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

        The same call gives the same bytes. Raises `UsageError` for an empty prompt, one that leaves less than
        `sampling.max_tokens` of the context, and a temperature that vLLM would change.
        """
        check_vllm_requests(prompts, group_size, sampling, seeds, self.max_model_len, self._model.source)
        requests = [self._parameters(sampling, group_size, seed) for seed in seeds]
        return self._wait(self._add(prompts, requests), sampling, progress)

    def begin(
        self, prompts: Sequence[Sequence[int]], *, group_size: int, sampling: Sampling, seeds: Sequence[int]
    ) -> Callable[[], list[list[Completion]]]:
        """As `generate`, in two steps: whatever has begun is sampled together, whoever waits."""
        check_vllm_requests(prompts, group_size, sampling, seeds, self.max_model_len, self._model.source)
        names = self._add(prompts, [self._parameters(sampling, group_size, seed) for seed in seeds])
        return lambda: self._wait(names, sampling, None)

    def resume(
        self, contexts: Sequence[Sequence[int]], *, limits: Sequence[int], sampling: Sampling, seeds: Sequence[int]
    ) -> list[Completion]:
        """One further turn of each text, each with a limit of its own; its keys and values are still in the prefix cache."""
        turns = [replace(sampling, max_tokens=limit) for limit in limits]
        for context, turn, seed in zip(contexts, turns, seeds, strict=True):
            check_vllm_requests([context], 1, turn, [seed], self.max_model_len, self._model.source)
        requests = [self._parameters(turn, 1, seed) for turn, seed in zip(turns, seeds, strict=True)]
        return [completion for (completion,) in self._wait(self._add(contexts, requests), sampling, None)]

    def _add(self, prompts: Sequence[Sequence[int]], requests: Sequence[Any]) -> list[str]:
        """Hand requests to the engine; returns their names."""
        self._calls += 1
        names = [f"{self._calls}-{index}" for index in range(len(prompts))]
        for name, prompt, params in zip(names, prompts, requests, strict=True):
            self._llm.llm_engine.add_request(name, {"prompt_token_ids": list(prompt)}, params)
        return names

    def _wait(self, names: Sequence[str], sampling: Sampling, progress: Callable[[int], None] | None) -> list[list[Completion]]:
        """Step until these requests are finished. Others that move on meanwhile wait in `_finished` for whoever asks."""
        missing = set(names) - self._finished.keys()
        while missing:
            for output in self._llm.llm_engine.step():
                if output.finished:
                    self._finished[output.request_id] = output
                    if output.request_id in missing and progress is not None:
                        progress(len(output.outputs))
                    missing.discard(output.request_id)
        outputs = [self._finished.pop(name) for name in names]
        return [[self._completion(sample, sampling) for sample in output.outputs] for output in outputs]

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take these weights in place and prove it.

        Every number that the engine holds must be the given one, cast to its dtype (`differing_weights`; a share below 1 of
        numbers compared is warned of, none is an error), and its log-probs of
        a probe must agree with the trainer's forward on them, which shows the kernels. An adapter is handed over
        merged into the weights under it and so is proved like them; the probe compares with the adapter beside them. Raises
        `DataError` when names do not fit the model, `GmcError` naming the layers when the proof fails.
        """
        expected = self._model.weights().keys()
        for name in sorted(expected ^ weights.keys()):
            raise DataError(f"weights and model {self._model.source} differ: tensor {name} is in one of them only.")
        reference = reference_logprobs(self._model, weights, self._probes)
        whole = weights if self._model.adapter is None else merged_weights(self._model.network, weights)
        with self._handed_over(whole) as handle:
            self._llm.collective_rpc("gmc_take_weights", args=(handle,))
            self._drop_caches()
            self._prove(handle)
            result = compare_probe(
                self._probe(), reference, floor=self._floor, before_N=self._reference, usual_rms=self._usual_rms
            )
            if result.fault is not None:
                raise GmcError(self._mismatch(result.fault))
        self._reference, self._usual_rms = reference, result.rms
        self.last_probe: ProbeResult = result

    def close(self) -> None:
        """End vLLM and free its memory."""
        if self._llm is None:
            return
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        self._llm = None
        cleanup_dist_env_and_memory()

    def _parameters(self, sampling: Sampling, group_size: int, seed: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            n=group_size,
            seed=spread_seed(seed),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            max_tokens=sampling.max_tokens,
            min_tokens=0,
            stop=list(sampling.stop),
            stop_token_ids=sorted(self._model.end_token_ids),
            ignore_eos=True,  # the end ids above are all there are
            include_stop_str_in_output=True,
            detokenize=bool(sampling.stop),
            skip_special_tokens=False,
            logprobs=0 if sampling.temperature > 0 else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _completion(self, sample: Any, sampling: Sampling) -> Completion:
        token_ids = list(sample.token_ids)
        if sample.finish_reason not in ("stop", "length"):
            raise GmcError(f"vLLM ended a response with '{sample.finish_reason}'. Its own messages are in {self._log_file}.")
        if sampling.temperature == 0:
            return Completion(token_ids, [0.0] * len(token_ids), sample.finish_reason)
        logprobs = [min(step[token].logprob, 0.0) for step, token in zip(sample.logprobs, token_ids, strict=True)]
        return Completion(token_ids, logprobs, sample.finish_reason)

    def _probe(self) -> Tensor:
        """The engine's log-probs of each probe token but the first: [N], float32."""
        from vllm import SamplingParams

        engine = self._llm.llm_engine
        params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        for index, ids in enumerate(self._probes):
            engine.add_request(f"probe-{index}", {"prompt_token_ids": ids}, params)
        scored: dict[int, list[float]] = {}
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    index = int(output.request_id.split("-")[1])
                    steps = zip(output.prompt_logprobs[1:], self._probes[index][1:], strict=True)
                    scored[index] = [step[token].logprob for step, token in steps]
        return torch.tensor([value for index in sorted(scored) for value in scored[index]])

    def _drop_caches(self) -> None:
        if not self._llm.reset_prefix_cache():
            raise GmcError("vLLM would not drop the key-value cache of the old weights: requests are still running.")

    @contextlib.contextmanager
    def _handed_over(self, weights: Mapping[str, Tensor]) -> Iterator[Mapping[str, Tensor] | str]:
        """Weights in the form that workers take: the tensors themselves, or a file in memory for other processes."""
        if self._in_process:
            yield {name: tensor.detach() for name, tensor in weights.items()}
            return
        needed = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
        with tempfile.TemporaryDirectory(prefix="gmc-weights-", dir=_memory_folder(needed)) as folder:
            path = os.path.join(folder, "weights.safetensors")
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, path)
            yield path

    def _prove(self, handle: Mapping[str, Tensor] | str) -> None:
        """Compare what every worker holds with what was handed over."""
        self._handovers += 1
        tied = dict(getattr(self._model.network, "_tied_weights_keys", None) or {})
        found = self._llm.collective_rpc("gmc_differing_weights", args=(handle, tied, self._handovers))
        counts = [(each["checked"], each["total"]) for each in found]
        self.proved_share = compared_share(counts, f"vLLM {self.version}", self.proved_share)
        shares: dict[str, float] = {}
        for name, share in (pair for each in found for pair in each["wrong"]):
            shares[name] = max(share, shares.get(name, 0.0))
        if shares:
            worst = sorted(shares.items(), key=lambda pair: -pair[1])
            named = ", ".join(f"{name} ({share:.1%} of its numbers)" for name, share in worst[:8])
            more = f" and {len(worst) - 8} more" if len(worst) > 8 else ""
            raise GmcError(self._mismatch(f"layers with other weights: {named}{more}"))

    def _mismatch(self, fault: str) -> str:
        return (
            f"vLLM {self.version} does not hold the weights of {self._model.source} that it was given: {fault}. "
            "Use --engine transformers, or a vLLM version whose weight updates work for this model."
        )


def _memory_folder(needed: int) -> str | None:
    """A folder in memory with room for `needed` bytes, or None for the usual temporary folder."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        return None
    statistics = os.statvfs(shared)
    return str(shared) if statistics.f_bavail * statistics.f_frsize > 1.1 * needed else None
