"""Sampling from vLLM servers that already run: prompts go to all of them, and no response is lost or counted twice.

A server is used only when it holds the weights of now: they are loaded through a file that it sees, proved number by number by
its own workers, and marked there. A server that was started anew has lost the mark, and is given the weights again.
"""

import itertools
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from gmc.config.settings import RunSettings
from gmc.engines.base import Completion, Engine, Sampling
from gmc.engines.requests import check_requests, spread_seed
from gmc.engines.server_client import ServerClient, ServerLostError
from gmc.errors import GmcError, UsageError
from gmc.models import LanguageModel
from gmc.store.temporary import temporary_name

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 600.0
POLL_SECONDS = 1.0
NEEDED = {"logprobs_mode": "processed_logprobs"}


class VllmServerEngine(Engine):
    """vLLM servers at `urls`, each with its own copy of the weights. folder: one that the servers see under the same path.

    patience_seconds: how long to wait for a server when none answers. Raises `UsageError` for servers that were started in
    another way than `server_command` says.
    """

    name = "vllm-server"
    summary = "vLLM servers that already run, at rollout.servers"
    shares_weights = False
    own_processes = True  # one process speaks for all ranks: servers take one set of weights at a time

    def __init__(
        self, model: LanguageModel, urls: Sequence[str], folder: Path, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        if not urls:
            raise UsageError(f"rollout.engine = {self.name}: name the servers, --set 'rollout.servers=[\"http://node7:8000\"]'")
        self._model, self._folder, self._patience = model, folder, patience_seconds
        self._servers = [ServerClient(url) for url in urls]
        self._handovers = itertools.count(1)
        self._resources = ExitStack()
        self._weights: Path | None = None
        self._mark = ""
        self.version = self._ready()[0].get("/version")["version"]
        self.load_weights(model.weights())

    @classmethod
    def build(
        cls, settings: RunSettings, model: LanguageModel, *, compute_dtype: torch.dtype | None, log_file: Path
    ) -> "VllmServerEngine":
        return cls(model, settings.rollout.servers, log_file.parent.parent / "handover")

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

        Each group is one request, so it comes whole or not at all. A group from a server that died, or that lost its weights
        before all its groups were there, is sampled again by another. Raises `GmcError` when no server answers for long.
        """
        check_requests(prompts, group_size, sampling, seeds, self._limit, self._model.source)
        asked = {
            index: self._request(prompt, group_size, sampling, seed)
            for index, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True))
        }
        done: dict[int, list[Completion]] = {}
        while missing := sorted(asked.keys() - done.keys()):
            servers = self._ready()
            with ThreadPoolExecutor(len(missing)) as pool:
                shares = {server: missing[place :: len(servers)] for place, server in enumerate(servers)}
                answers = {
                    server: [pool.submit(self._group, server, asked[index], sampling) for index in share]
                    for server, share in shares.items()
                }
            for server, futures in answers.items():
                groups = [future.result() for future in futures]
                if None in groups or not self._holds(server):
                    log.warning("%s was lost or started anew in the middle; its groups are sampled again", server.url)
                    groups = [group if self._holds(server) else None for group in groups]
                for index, group in zip(shares[server], groups, strict=True):
                    if group is not None:
                        done[index] = group
                        if progress is not None:
                            progress(group_size)
        return [done[index] for index in range(len(prompts))]

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Have every server that answers take these weights and prove it; the others do when they are there again."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = temporary_name(self._folder / "weights.safetensors")
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, path)
        old, self._weights, self._mark = self._weights, path, secrets.token_hex(8)
        if old is not None:
            old.unlink(missing_ok=True)
        self._ready()

    def close(self) -> None:
        """Leave the servers as they are, and remove the file of weights."""
        if self._weights is not None:
            self._weights.unlink(missing_ok=True)
        self._weights = None

    def _ready(self) -> list[ServerClient]:
        """The servers that answer, each with the weights of now. Waits for the first one."""
        deadline, errors = time.monotonic() + self._patience, [""]
        while True:
            with ThreadPoolExecutor(len(self._servers)) as pool:
                found = list(pool.map(self._prepare, self._servers))
            ready = [server for server, error in zip(self._servers, found, strict=True) if error is None]
            if ready:
                return ready
            errors = [error for error in found if error is not None]
            if time.monotonic() > deadline:
                raise GmcError(f"no vLLM server answers for {self._patience:.0f} s: {errors[0]}; {server_command(self._model)}")
            time.sleep(POLL_SECONDS)

    def _prepare(self, server: ServerClient) -> str | None:
        """Have a server hold the weights of now; what keeps it from answering, else None."""
        try:
            if self._weights is None:
                self._look_at(server)
            elif not self._holds(server):
                self._hand_over(server, self._weights)
        except ServerLostError as error:
            return str(error)
        return None

    def _look_at(self, server: ServerClient) -> None:
        """Refuse a server that was not started for this."""
        server.get("/health")
        try:
            (about, *_) = server.call("gmc_about")
        except (GmcError, ValueError) as error:
            raise UsageError(f"{server.url}: lacks what gmc adds to vLLM ({error}); {server_command(self._model)}") from error
        wanted = {**NEEDED, "vocabulary_size": self._model.vocabulary_size, "absent_ids": list(self._model.absent_ids)}
        for name, value in wanted.items():
            if about[name] != value:
                raise UsageError(f"{server.url}: its {name} is {about[name]}, not {value}; {server_command(self._model)}")
        self._limit = self.context_tokens = int(about["max_model_len"])
        (self._served,) = [each["id"] for each in server.get("/v1/models")["data"]][:1]

    def _holds(self, server: ServerClient) -> bool:
        try:
            return all(mark == self._mark for mark in server.call("gmc_mark"))
        except GmcError:
            return False

    def _hand_over(self, server: ServerClient, weights: Path) -> None:
        self._look_at(server)
        server.call("gmc_take_weights", str(weights.absolute()))
        if not server.post("/reset_prefix_cache", {})["success"]:
            raise GmcError(f"{server.url}: would not drop the cache of the old weights; others are sampling from it")
        tied = dict(getattr(self._model.network, "_tied_weights_keys", None) or {})
        found = server.call("gmc_differing_weights", str(weights.absolute()), tied, next(self._handovers))
        wrong = [name for each in found for name, _ in each["wrong"]]
        if wrong or not found:
            raise GmcError(f"{server.url}: does not hold the weights that it was given: layers {', '.join(wrong[:8])}")
        self.proved_share = sum(each["checked"] for each in found) / sum(each["total"] for each in found)
        server.call("gmc_take_mark", self._mark)

    def _group(self, server: ServerClient, request: dict[str, Any], sampling: Sampling) -> list[Completion] | None:
        """One group, None when the server was lost meanwhile."""
        try:
            answer = server.post("/v1/completions", {**request, "model": self._served})
        except ServerLostError:
            return None
        choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
        if len(choices) != request["n"]:
            raise GmcError(f"{server.url}: {len(choices)} responses to a request for {request['n']}")
        return [self._completion(server, choice, sampling) for choice in choices]

    def _completion(self, server: ServerClient, choice: Mapping[str, Any], sampling: Sampling) -> Completion:
        token_ids, reason = list(choice["token_ids"]), choice["finish_reason"]
        if reason not in ("stop", "length"):
            raise GmcError(f"{server.url}: ended a response with '{reason}'")
        if sampling.temperature == 0:
            return Completion(token_ids, [0.0] * len(token_ids), reason)
        logprobs = [min(float(value), 0.0) for value in choice["logprobs"]["token_logprobs"]]
        if len(logprobs) != len(token_ids):
            raise GmcError(f"{server.url}: {len(logprobs)} log-probs for {len(token_ids)} tokens")
        return Completion(token_ids, logprobs, reason)

    def _request(self, prompt: Sequence[int], group_size: int, sampling: Sampling, seed: int) -> dict[str, Any]:
        return {
            "prompt": list(prompt),
            "n": group_size,
            "seed": spread_seed(seed),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "max_tokens": sampling.max_tokens,
            "stop": list(sampling.stop),
            "stop_token_ids": sorted(self._model.end_token_ids),
            "ignore_eos": True,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "add_special_tokens": False,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "logprobs": 0 if sampling.temperature > 0 else None,
        }


def server_command(model: LanguageModel) -> str:
    """How such a server is started, for an error message."""
    own = json.dumps({"gmc_vocabulary_size": model.vocabulary_size, "gmc_absent_ids": list(model.absent_ids)})
    return (
        f"start it with VLLM_SERVER_DEV_MODE=1 vllm serve {model.source} --logprobs-mode processed_logprobs "
        "--generation-config vllm --worker-extension-cls gmc.engines.vllm_worker.WeightsExtension "
        f"--logits-processors gmc.engines.vllm_worker:VocabularyMask --additional-config '{own}', where gmc is installed"
    )
