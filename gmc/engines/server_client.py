"""One vLLM server over HTTP: JSON in, JSON out, and what went wrong in a few kinds."""

import http.client
import ipaddress
import json
import re
import selectors
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from gmc.errors import GmcError, UsageError

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 600.0
LABEL = re.compile(rb"(?!xn--$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?", re.IGNORECASE)

Value = TypeVar("Value")


class ServerLostError(GmcError):
    """A server does not answer, or ended in the middle of an answer; another one, or the same one later, may."""


class ServerSilentError(ServerLostError):
    """A server cannot be reached, broke the connection, or answers nothing."""


class ServerSlowError(ServerSilentError):
    """A server took a request and let the time for an answer pass."""


class ServerAnswerError(GmcError):
    """What answers at the address does not speak as a vLLM server does."""


class ServerClient:
    """The server at `url`, such as "http://node7:8000". Safe to use from several threads.

    answer_seconds: how long it may answer none of the requests that wait for it; they queue there, so it is not for each.
    """

    def __init__(self, url: str, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._parts = _parts(url)
        self.url = url.rstrip("/")
        self._answer_seconds, self._answered = answer_seconds, 0.0

    def get(self, path: str) -> Any:
        """The JSON behind a path. Errors as for `post`."""
        return self._ask("GET", path, None, CONNECT_SECONDS)

    def post(self, path: str, content: Any, seconds: float | None = None) -> Any:
        """The answer to a JSON object, None for an empty one. seconds: at most, instead of `answer_seconds`.

        Raises `ServerLostError` when the server is not there or fails on its side, `ServerAnswerError` when the answer is no
        JSON, `GmcError` when it refuses the request.
        """
        bound = self._answer_seconds if seconds is None else min(seconds, self._answer_seconds)
        answer = self._ask("POST", path, json.dumps(content, allow_nan=False), bound)
        self._answered = time.monotonic()
        return answer

    def call(self, method: str, *arguments: Any, seconds: float | None = None) -> list[Any]:
        """The answers of all workers to one of the methods that gmc adds to them (`gmc.engines.vllm_worker`)."""
        answer = self.post("/collective_rpc", {"method": method, "args": list(arguments)}, seconds)
        return self.read(method, answer, lambda given: _list(given["results"])) if answer else []

    def read(self, asked: str, answer: Any, reader: Callable[[Any], Value]) -> Value:
        """What `reader` finds in an answer. asked: what was asked for; raises `ServerAnswerError` where it is not there."""
        try:
            return reader(answer)
        except GmcError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            wrong = f"lacks {error}" if isinstance(error, KeyError) else "has another form"
            shown = json.dumps(answer)[:200]
            raise ServerAnswerError(f"{self.url}: its answer to {asked} {wrong}: {shown}; is this a vLLM server?") from error

    def _ask(self, verb: str, path: str, body: str | None, seconds: float) -> Any:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        assert self._parts.hostname is not None
        connection = kind(self._parts.hostname, self._parts.port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
            connection.sock.settimeout(seconds)
            connection.request(verb, self._parts.path.rstrip("/") + path, body, {"Content-Type": "application/json"})
            self._wait(connection, path, seconds)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServerSilentError(f"{self.url}{path}: {type(error).__name__}: {_first_line(str(error))}") from error
        finally:
            connection.close()
        text = content.decode(errors="replace")
        if response.status >= 500:
            raise ServerLostError(f"{self.url}{path}: status {response.status}: {_first_line(text)}")
        if response.status >= 400:
            raise GmcError(f"{self.url}{path}: status {response.status}: {_first_line(text)}")
        if response.status >= 300:
            there = response.getheader("Location", "nowhere")
            raise ServerAnswerError(
                f"{self.url}{path}: status {response.status}, it sends on to {there}; name the server itself"
            )
        return self._json(path, content)

    def _wait(self, connection: http.client.HTTPConnection, path: str, seconds: float) -> None:
        """Until an answer begins. Raises `ServerSlowError` when so long neither this request nor another one was answered."""
        asked = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(connection.sock, selectors.EVENT_READ)
            while (left := max(asked, self._answered) + seconds - time.monotonic()) > 0:
                if selector.select(min(left, 1.0)):
                    return
        raise ServerSlowError(f"{self.url}{path}: no answer for {seconds:.0f} s")

    def _json(self, path: str, content: bytes) -> Any:
        try:
            text = content.decode()
            return json.loads(text) if text.strip() else None
        except UnicodeDecodeError as error:
            raise ServerAnswerError(f"{self.url}{path}: its answer is not in UTF-8; is this a vLLM server?") from error
        except (ValueError, RecursionError) as error:
            said = _first_line(text)[:100]
            raise ServerAnswerError(f"{self.url}{path}: its answer is no JSON: {said}; is this a vLLM server?") from error


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it begins with http:// or https:// and a host")
        _ = parts.port
        _check_host(parts.hostname)
        if not url.isprintable() or not parts.path.isascii() or " " in url:
            raise ValueError("it holds characters that no address has")
    except ValueError as error:
        shown = url if url.isprintable() else ascii(url)
        raise UsageError(f"rollout.servers: {shown} is no address ({error}); write it like http://node7:8000") from error
    return parts


def _check_host(host: str) -> None:
    if ":" in host:
        ipaddress.ip_address(host)
        return
    try:
        labels = host.removesuffix(".").encode("idna").split(b".")
    except UnicodeError as error:
        raise ValueError(f"there can be no host {host}") from error
    if not all(LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"there can be no host {host}")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} instead of a list")
    return value


def _first_line(text: str) -> str:
    return next((line.strip()[:300] for line in text.splitlines() if line.strip()), "no reason given")
