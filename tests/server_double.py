"""A vLLM server as gmc sees it, that can die, forget, hang and say what no vLLM server says."""

import hashlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tiny_models import tiny_model

from gmc.models import LanguageModel

TRANSFER = ("/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update")
TRANSFER += ("/shutdown_weight_transfer_engine",)
"""vLLM's own way for weights, of which the double notes what it is told."""


class Double:
    """A server as gmc sees it. die_in: completions after which it drops every connection until `revive`, with a new memory.

    says: what it answers instead, by path or method: an object, (status, body), or a function that gives one.
    """

    def __init__(self, vocabulary_size: int, **about: object) -> None:
        self.about = {"logprobs_mode": "processed_logprobs", "max_model_len": 256, "vocabulary_size": vocabulary_size}
        self.about |= {"absent_ids": [], **about}
        self.mark, self.weights, self.served, self.taken = "", "", [], []
        self.heard: list[tuple[str, dict]] = []
        self.wrong: list[list[object]] = []
        self.checked = 5
        self.die_in: int | None = None
        self.forget_in: int | None = None
        self.says: dict[str, object] = {}
        self._lock = threading.Lock()
        double = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                self._answer(double.says.get(self.path) or double.get(self.path))

            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                said = double.says.get(content.get("method", self.path)) or double.says.get(self.path)
                self._answer(said or double.post(self.path, content))

            def _answer(self, answer: object) -> None:
                if answer is None:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if callable(answer):
                    answer = answer()
                status, body = answer if isinstance(answer, tuple) else (200, json.dumps(answer).encode())
                self.send_response(status)
                if status == 301:
                    self.send_header("Location", "http://elsewhere/")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def revive(self) -> None:
        self.die_in, self.mark = None, ""

    def get(self, path: str) -> object:
        if self.die_in == 0:
            return None
        return {"/version": {"version": "0.32.0"}, "/v1/models": {"data": [{"id": "m"}]}, "/health": {}}[path]

    def post(self, path: str, content: dict) -> object:
        with self._lock:
            if self.die_in == 0:
                return None
            if path == "/reset_prefix_cache":
                return {"success": True}
            if path in TRANSFER:
                self.heard.append((path, content))
                return {"message": "done"}
            if path == "/collective_rpc":
                return {"results": [getattr(self, content["method"])(*content["args"])]}
            assert path == "/v1/completions"
            if self.die_in is not None:
                self.die_in -= 1
            if self.forget_in is not None:
                self.forget_in -= 1
                if self.forget_in == 0:
                    self.mark = ""
            self.served.append((content["prompt"], bool(self.mark)))
            return {"choices": [self.choice(content, sample) for sample in reversed(range(content["n"]))]}

    def choice(self, content: dict, sample: int) -> dict:
        """What is sampled depends on prompt, seed and sample alone, whoever samples."""
        digest = hashlib.blake2b(f"{content['prompt']}/{content['seed']}/{sample}".encode(), digest_size=4).digest()
        ids = [3 + byte % 40 for byte in digest][: content["max_tokens"]]
        return {"index": sample, "token_ids": ids, "finish_reason": "stop", "logprobs": {"token_logprobs": [-0.5] * len(ids)}}

    def gmc_about(self) -> dict:
        return self.about

    def gmc_take_weights(self, path: str) -> None:
        assert os.path.exists(path)
        self.taken.append(path)

    def gmc_differing_weights(self, path: str, tied: dict, seed: int) -> dict:
        assert os.path.exists(path)
        return {"wrong": self.wrong, "checked": self.checked, "total": 5}

    def gmc_take_mark(self, mark: str) -> None:
        self.mark = mark

    def gmc_mark(self) -> str:
        return self.mark


@contextmanager
def doubles(vocabulary_size: int, count: int) -> Iterator[list[Double]]:
    """So many servers, until the end of the block."""
    started = [Double(vocabulary_size) for _ in range(count)]
    yield started
    for double in started:
        double.server.shutdown()
        double.server.server_close()


def served_model() -> LanguageModel:
    """Small, with heads of a size that vLLM's attention takes. A fixture of whoever asks servers."""
    return tiny_model(0, head_dim=32, max_position_embeddings=256)


def two_doubles(model: LanguageModel) -> Iterator[list[Double]]:
    """The fixture `servers` of a file whose fixture `model` is the one above."""
    with doubles(model.vocabulary_size, 2) as started:
        yield started
