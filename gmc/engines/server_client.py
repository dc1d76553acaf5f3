"""One vLLM server over HTTP: JSON in, JSON out, and what went wrong in two kinds."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from gmc.errors import GmcError, UsageError

CONNECT_SECONDS = 10.0


class ServerLostError(GmcError):
    """A server does not answer, or ended in the middle of an answer; another one, or the same one later, may."""


class ServerClient:
    """The server at `url`, such as "http://node7:8000". Safe to use from several threads."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"rollout.servers: {url} is no address; write it like http://node7:8000")
        self.url = url.rstrip("/")
        self._parts = parts

    def get(self, path: str) -> Any:
        """The JSON behind a path. Errors as for `post`."""
        return self._ask("GET", path, None, CONNECT_SECONDS)

    def post(self, path: str, content: Any, seconds: float | None = None) -> Any:
        """The answer to a JSON object, None for an empty one. seconds: how long to wait for it; None for ever.

        Raises `ServerLostError` when the server is not there or fails on its side, `GmcError` when it refuses the request.
        """
        return self._ask("POST", path, json.dumps(content, allow_nan=False), seconds)

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """The answers of all workers to one of the methods that gmc adds to them (`gmc.engines.vllm_worker`)."""
        answer = self.post("/collective_rpc", {"method": method, "args": list(arguments)})
        results: list[Any] = answer["results"] if answer else []
        return results

    def _ask(self, verb: str, path: str, body: str | None, seconds: float | None) -> Any:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        assert self._parts.hostname is not None
        connection = kind(self._parts.hostname, self._parts.port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
            connection.sock.settimeout(seconds)
            connection.request(verb, self._parts.path.rstrip("/") + path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise ServerLostError(f"{self.url}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if response.status >= 500:
            raise ServerLostError(f"{self.url}{path}: status {response.status}: {_first_line(text)}")
        if response.status >= 400:
            raise GmcError(f"{self.url}{path}: status {response.status}: {_first_line(text)}")
        return json.loads(text) if text.strip() else None


def _first_line(text: str) -> str:
    return next((line.strip()[:300] for line in text.splitlines() if line.strip()), "no reason given")
