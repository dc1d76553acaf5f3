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
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from gmc.config.settings import RunSettings
from gmc.engines.base import Completion, Engine, Sampling
from gmc.engines.requests import check_vllm_requests, spread_seed
from gmc.engines.server_client import ServerAnswerError, ServerClient, ServerLostError, ServerSilentError, ServerSlowError
from gmc.engines.server_waiting import Signals, side_by_side
from gmc.engines.vllm_proof import compared_share
from gmc.engines.weight_transfer import TRANSFERS, FolderTransfer
from gmc.errors import GmcError, UsageError
from gmc.models import LanguageModel
from gmc.store.temporary import temporary_name

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 600.0
POLL_SECONDS = 1.0
MARK_SECONDS = 60.0
ABOUT = ("logprobs_mode", "max_model_len", "vocabulary_size", "absent_ids")
NEEDED = {"logprobs_mode": "processed_logprobs"}


class VllmServerEngine(Engine):
    """vLLM servers at `urls`, each with its own copy of the weights. folder: one that the servers see under the same path.

    patience_seconds: how long to wait for a server when none answers, and for one that answers nothing more. Raises
    `UsageError` for servers that were started in another way than `server_command` says.
    """

    name = "vllm-server"
    summary = "vLLM servers that already run, at rollout.servers"
    shares_weights = False
    weight_transfers = follower_transfers = tuple(TRANSFERS)
    own_processes = True  # one process speaks for all ranks: servers take one set of weights at a time

    def __init__(
        self,
        model: LanguageModel,
        urls: Sequence[str],
        folder: Path,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        transfer: str = FolderTransfer.name,
    ) -> None:
        if not urls:
            raise UsageError(f"rollout.engine = {self.name}: name the servers, --set 'rollout.servers=[\"http://node7:8000\"]'")
        self._model, self._folder, self._patience = model, folder, patience_seconds
        self._servers = [ServerClient(url, patience_seconds) for url in urls]
        self._transfer, self._sent = TRANSFERS[transfer](patience_seconds), list[ServerClient]()
        self._handovers = itertools.count(1)
        self._signals = Signals()
        self._weights: Path | None = None
        self._mark = ""
        self.proved_share: float | None = None
        server = self._ready()[0]
        self.version = server.read("/version", server.get("/version"), lambda answer: _text(answer["version"]))
        try:
            self.load_weights(model.weights())
        except BaseException:
            self.close()
            raise

    @classmethod
    def build(
        cls, settings: RunSettings, model: LanguageModel, *, compute_dtype: torch.dtype | None, log_file: Path
    ) -> "VllmServerEngine":
        rollout = settings.rollout
        return cls(model, rollout.servers, log_file.parent.parent / "handover", transfer=rollout.weight_transfer)

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
        check_vllm_requests(prompts, group_size, sampling, seeds, self._limit, self._model.source)
        asked = {
            index: self._request(prompt, group_size, sampling, seed)
            for index, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True))
        }
        done: dict[int, list[Completion]] = {}
        silent: set[ServerClient] = set()
        with self._signals.watched():
            while missing := sorted(asked.keys() - done.keys()):
                servers = [server for server in self._ready() if server not in silent]
                if not servers:
                    raise GmcError(
                        f"{next(iter(silent)).url}: answers, but gave no group of responses for {self._patience:.0f} s"
                    )
                groups = self._round(servers, {index: asked[index] for index in missing}, sampling, silent)
                done |= groups
                if progress is not None:
                    for _ in groups:
                        progress(group_size)
        return [done[index] for index in range(len(prompts))]

    def _round(
        self,
        servers: Sequence[ServerClient],
        asked: Mapping[int, dict[str, Any]],
        sampling: Sampling,
        silent: set[ServerClient],
    ) -> dict[int, list[Completion]]:
        """The groups that came whole, of those dealt out once. silent: takes the servers that let their time pass."""
        shares = {server: list(asked)[place :: len(servers)] for place, server in enumerate(servers)}
        tasks = {
            index: partial(self._group, server, asked[index], sampling, silent)
            for server, share in shares.items()
            for index in share
        }
        groups = side_by_side(tasks)
        done: dict[int, list[Completion]] = {}
        for server, share in shares.items():
            lost = any(groups[index] is None for index in share) or not self._holds(server)
            if lost:
                log.warning("%s was lost or started anew in the middle; its groups are sampled again", server.url)
            if not lost or self._holds(server):
                done |= {index: group for index in share if (group := groups[index]) is not None}
        return done

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Have every server that answers take these weights and prove it; the others do when they are there again."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = temporary_name(self._folder / "weights.safetensors")
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, path)
        try:
            self._sent = self._transfer.send(weights, self._holding)
        except BaseException:
            path.unlink()
            raise
        old, self._weights, self._mark = self._weights, path, secrets.token_hex(8)
        if old is not None:
            old.unlink(missing_ok=True)
        self._ready()

    def close(self) -> None:
        """Leave the servers as they are, and remove the file of weights."""
        self._transfer.close()
        if self._weights is not None:
            self._weights.unlink(missing_ok=True)
        self._weights = None

    def _ready(self) -> list[ServerClient]:
        """The servers that answer, each with the weights of now. Waits for the first one; signals end the wait."""
        deadline, said = time.monotonic() + self._patience, False

        def say(error: str = "no answer yet") -> None:
            nonlocal said
            if not said:
                names = ", ".join(server.url for server in self._servers)
                log.warning("waiting for %s, up to %.0f s (%s)", names, self._patience, error)
            said = True

        with self._signals.waiting():
            while True:
                found = side_by_side({server: partial(self._prepare, server) for server in self._servers}, say)
                ready = [server for server in self._servers if found[server] is None]
                if ready:
                    return ready
                error = next(error for server in self._servers if (error := found[server]) is not None)
                if time.monotonic() > deadline:
                    raise GmcError(f"no vLLM server answers for {self._patience:.0f} s: {error}; {server_command(self._model)}")
                say(error)
                time.sleep(POLL_SECONDS)

    def _prepare(self, server: ServerClient) -> str | None:
        """Have a server hold the weights of now; what keeps it from answering, else None."""
        try:
            if self._weights is None:
                self._look_at(server)
            elif not self._holds(server, silence_raises=True):
                self._hand_over(server, self._weights)
        except ServerLostError as error:
            return str(error)
        return None

    def _look_at(self, server: ServerClient) -> None:
        """Refuse a server that was not started for this."""
        server.get("/health")
        try:
            answers = server.call("gmc_about", seconds=MARK_SECONDS)
        except (ServerSilentError, ServerAnswerError):
            raise
        except GmcError as error:
            raise UsageError(f"{server.url}: lacks what gmc adds to vLLM ({error}); {server_command(self._model)}") from error
        about = server.read("gmc_about", answers, lambda given: {name: given[0][name] for name in ABOUT})
        wanted = {**NEEDED, "vocabulary_size": self._model.vocabulary_size, "absent_ids": list(self._model.absent_ids)}
        for name, value in wanted.items():
            if about[name] != value:
                raise UsageError(f"{server.url}: its {name} is {about[name]}, not {value}; {server_command(self._model)}")
        self._limit = self.context_tokens = server.read("gmc_about", answers, lambda given: int(given[0]["max_model_len"]))
        models = server.get("/v1/models")
        self._served = server.read("/v1/models", models, lambda given: _text(given["data"][0]["id"]))

    def _holds(self, server: ServerClient, *, silence_raises: bool = False) -> bool:
        """Whether all its workers have the mark of now. silence_raises: else a server that says nothing has none."""
        try:
            marks = server.call("gmc_mark", seconds=MARK_SECONDS)
        except GmcError as error:
            if silence_raises and isinstance(error, ServerSilentError):
                raise
            return False
        return bool(marks) and all(mark == self._mark for mark in marks)

    def _holding(self) -> list[ServerClient]:
        """The servers that have not been started anew since they took what they hold."""
        return [server for server in self._servers if self._holds(server)]

    def _hand_over(self, server: ServerClient, weights: Path) -> None:
        self._look_at(server)
        if server in self._sent:
            self._sent.remove(server)  # once: should it be started anew, it reads the file
        else:
            server.call("gmc_take_weights", str(weights.absolute()))
        dropped = server.post("/reset_prefix_cache", {})
        if not server.read("/reset_prefix_cache", dropped, lambda given: given["success"]):
            raise GmcError(f"{server.url}: would not drop the cache of the old weights; others are sampling from it")
        tied = dict(getattr(self._model.network, "_tied_weights_keys", None) or {})
        found = server.call("gmc_differing_weights", str(weights.absolute()), tied, next(self._handovers))
        wrong, counts = server.read("gmc_differing_weights", found, _proof)
        if wrong:
            raise GmcError(f"{server.url}: does not hold the weights that it was given: layers {', '.join(wrong[:8])}")
        self.proved_share = compared_share(counts, server.url, self.proved_share)
        server.call("gmc_take_mark", self._mark)

    def _group(
        self, server: ServerClient, request: dict[str, Any], sampling: Sampling, silent: set[ServerClient]
    ) -> list[Completion] | None:
        """One group, None when the server was lost meanwhile. silent: takes it when it let its time pass."""
        try:
            answer = server.post("/v1/completions", {**request, "model": self._served})
        except ServerSlowError:
            silent.add(server)
            return None
        except ServerLostError:
            return None
        return server.read("/v1/completions", answer, lambda given: self._completions(server, given, request["n"], sampling))

    def _completions(self, server: ServerClient, answer: Any, count: int, sampling: Sampling) -> list[Completion]:
        choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
        if len(choices) != count:
            raise GmcError(f"{server.url}: {len(choices)} responses to a request for {count}")
        return [self._completion(server, choice, sampling) for choice in choices]

    def _completion(self, server: ServerClient, choice: Mapping[str, Any], sampling: Sampling) -> Completion:
        token_ids, reason = [int(token) for token in choice["token_ids"]], choice["finish_reason"]
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


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of text")
    return value


def _proof(found: Any) -> tuple[list[str], list[tuple[int, int]]]:
    """The layers that differ at any worker, and how many numbers each compared of how many."""
    if not found:
        raise ValueError("no worker answered")
    wrong = [str(name) for each in found for name, _ in each["wrong"]]
    return wrong, [(int(each["checked"]), int(each["total"])) for each in found]
