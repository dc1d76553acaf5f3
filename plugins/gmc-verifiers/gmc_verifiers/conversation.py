"""One episode of verifiers, seen from gmc: what it asks of the model, and what the model is made to have said."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.v1.episode import Episode
from verifiers.v1.trace import Trace

from gmc.errors import GmcError

CUT = "max_output_tokens"
"""What verifiers calls it when the model may not go on."""


class UnsupportedError(GmcError):
    """An environment does something that gmc cannot play; the line names it."""


class Conversation:
    """The endpoint's side of one episode. Lives in the event loop; nothing here may be called from another thread.

    requests: the conversations that the model was asked to continue and was not yet heard on. over: no further call of the
    model is answered.
    """

    def __init__(self) -> None:
        self.requests: asyncio.Queue[Sequence[Mapping[str, Any]]] = asyncio.Queue()
        self.over = False
        self.trace: Trace | None = None
        self.play: asyncio.Task[Episode] | None = None
        self._said: list[Mapping[str, Any]] = []
        self._answer: asyncio.Future[tuple[str, str] | None] | None = None
        self._second = False

    def minted(self, trace: Trace) -> None:
        """Told of each run of the agent: one is what gmc plays."""
        self._second = self.trace is not None
        self.trace = self.trace or trace

    async def completion(self, messages: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
        """What the model says to `messages` and why it ended; None when it may not go on. For the endpoint."""
        if self.over:
            return None
        self._answer = asyncio.get_running_loop().create_future()
        await self.requests.put(messages)
        return await self._answer

    async def next(self) -> str | None:
        """What the environment puts to the model next; None once the episode is over. Raises `UnsupportedError`."""
        assert self.play is not None
        asked = asyncio.ensure_future(self.requests.get())
        try:
            await asyncio.wait({asked, self.play}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            heard = asked.done()
            asked.cancel()
        if self._second:
            raise UnsupportedError("it runs its agent more than once in an episode; one conversation is what gmc plays")
        if not heard:
            return None
        messages = asked.result()
        said, self._said = self._said, list(messages)
        return new_text(said, messages)

    def say(self, text: str, *, cut: bool = False) -> None:
        """The model's turn. cut: it reached a length limit, and may not go on."""
        assert self._answer is not None
        self._said.append({"role": "assistant", "content": text})
        self.over = cut
        self._answer.set_result((text, "length" if cut else "stop"))

    def end(self) -> None:
        """The model may not go on; the episode is scored as it stands."""
        self.over = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def drop(self) -> None:
        """Nobody wants this episode any more."""
        self.over = True
        if self._answer is not None:
            self._answer.cancel()
        if self.play is not None:
            self.play.cancel()

    def stop(self) -> None:
        """Have verifiers see a limit, not a failure, in a call that is not answered."""
        if self.trace is not None:
            self.trace.stop(CUT)


def new_text(said: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]) -> str:
    """What `messages` adds to what was said. Raises `UnsupportedError` for what is no plain turn."""
    if [_plain(message) for message in said] != [_plain(message) for message in messages[: len(said)]]:
        raise UnsupportedError("it rewrites what was said before; gmc trains on tokens as they were sampled")
    new = [_plain(message) for message in messages[len(said) :]]
    roles = [role for role, _ in new]
    if roles != ["user"] and (said or roles != ["system", "user"]):
        what = ", ".join(roles) or "nothing"
        raise UnsupportedError(f"it puts messages of the roles {what} at once; gmc plays one user message a turn")
    # As verifiers does for a harness that has no system messages.
    return "\n\n".join(text for _, text in new)


def _plain(message: Mapping[str, Any]) -> tuple[str, str]:
    content = message.get("content") or ""
    if message.get("tool_calls") or not isinstance(content, str):
        raise UnsupportedError("its messages hold calls of tools or images; gmc plays text")
    return str(message["role"]), content
