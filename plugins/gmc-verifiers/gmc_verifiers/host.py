"""Where episodes of verifiers run: an event loop in a thread of its own, and the endpoint on 127.0.0.1 that they call.

Everything that verifiers does with an episode is its own code: set-up, stops, scoring and clean-up.
"""

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from aiohttp import web
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.clients.client import SESSION_ID_HEADER
from verifiers.v1.env import Env
from verifiers.v1.episode import Episode
from verifiers.v1.task import Task
from verifiers.v1.trace import Trace

from gmc.errors import GmcError
from gmc_verifiers.conversation import Conversation

T = TypeVar("T")
MODEL = "gmc"


class TooLateError(GmcError):
    """An environment did not answer in time."""


class Host:
    """Plays the episodes of one environment. `close` ends the thread and all that is unfinished.

    env: of verifiers, its agent played by the harness of this package. seconds: how long one step of an episode may take.
    """

    def __init__(self, env: Env[Any], seconds: float) -> None:
        self._env, self._seconds = env, seconds
        self._open: dict[str, Conversation] = {}
        self._all: set[Conversation] = set()
        self._stack = AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gmc-verifiers", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        try:
            self._context = self._wait(self._serve())
        except BaseException:
            self.close()
            raise

    def begin(self, task: Task[Any, Any, Any]) -> tuple[Conversation, str | None]:
        """A new episode and its first question; None when it ended without one."""
        return self._wait(self._begin(task))

    def say(self, conversation: Conversation, text: str, *, cut: bool = False) -> str | None:
        """The model's turn, and what the environment answers; None when the episode is over."""

        async def turn() -> str | None:
            conversation.say(text, cut=cut)
            return await conversation.next()

        return self._wait(turn())

    def end(self, conversation: Conversation) -> None:
        """The model may not go on: have the episode end."""

        async def end() -> None:
            conversation.end()
            assert conversation.play is not None
            await asyncio.wait({conversation.play})

        self._wait(end())

    def drop(self, conversation: Conversation) -> None:
        """Forget an episode, finished or not."""

        async def drop() -> None:
            conversation.drop()
            assert conversation.play is not None
            await asyncio.wait({conversation.play})

        self._wait(drop())

    def close(self) -> None:
        """End what is running."""

        async def close() -> None:
            for conversation in self._all:
                conversation.drop()
            plays = [conversation.play for conversation in self._all if conversation.play is not None]
            await asyncio.gather(*plays, return_exceptions=True)
            await self._stack.aclose()
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        atexit.unregister(self.close)
        try:
            self._wait(close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(self._seconds)
            if not self._thread.is_alive():
                self._loop.close()

    def _wait(self, step: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(step, self._loop)
        try:
            return future.result(self._seconds)
        except TimeoutError as error:
            if future.done():
                raise  # the environment's own
            raise TooLateError(f"it took longer than {self._seconds:g} s, the setting rollout.environment_seconds") from error
        finally:  # also where gmc's own limit of the call, or Ctrl-C, ends the waiting
            future.cancel()

    async def _serve(self) -> ModelContext:
        # A request holds a whole conversation.
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        await self._stack.enter_async_context(self._env.serving())
        client = EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1", api_key_var="GMC_NO_KEY")
        return ModelContext(model=MODEL, client=client)

    async def _begin(self, task: Task[Any, Any, Any]) -> tuple[Conversation, str | None]:
        conversation = Conversation()

        def minted(trace: Trace) -> None:
            conversation.minted(trace)
            self._open[trace.id] = conversation

        def done(play: "asyncio.Task[Episode]") -> None:
            self._all.discard(conversation)
            if conversation.trace is not None:
                self._open.pop(conversation.trace.id, None)

        conversation.play = self._loop.create_task(self._env.run_episode(task, self._context, on_trace=minted))
        self._all.add(conversation)
        conversation.play.add_done_callback(done)
        return conversation, await conversation.next()

    async def _complete(self, request: web.Request) -> web.Response:
        conversation = self._open.get(request.headers.get(SESSION_ID_HEADER, ""))
        if conversation is None:
            return web.json_response({"error": {"message": "no such episode"}}, status=404)
        answer = await conversation.completion((await request.json())["messages"])
        if answer is None:
            conversation.stop()
            return web.json_response({"error": {"message": "no tokens are left"}}, status=400)
        text, reason = answer
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        return web.json_response({"id": "gmc", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]})
