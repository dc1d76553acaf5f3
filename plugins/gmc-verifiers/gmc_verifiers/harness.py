"""The harness: puts the conversation to the endpoint once and is done, as `null` of verifiers does without tools.

`null` starts a program for every turn, which fetches its packages by `uv`. This one does the same from inside the process,
which the contract of a harness allows as long as every call goes through the endpoint that it is given.
"""

from typing import Any

import httpx
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace

from gmc_verifiers.conversation import CUT

HARNESS = "gmc-verifiers"
"""Its id."""


class ChatHarnessConfig(HarnessConfig):
    """No settings of its own."""


class ChatHarness(Harness[ChatHarnessConfig]):
    """One call a segment, no tools, nothing executed."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: ModelContext,
        trace: Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult:
        """One segment of a conversation."""
        system, prompt = self.resolve_prompt(data)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or ()]
        # No time limit of its own: the model may be sampling a large batch.
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            answer = await client.post(
                f"{endpoint}/chat/completions",
                json={"model": ctx.model, "messages": messages},
                headers={"Authorization": f"Bearer {secret}"},
            )
        failed = answer.status_code != httpx.codes.OK
        if not failed and answer.json()["choices"][0]["finish_reason"] == "length":
            trace.stop(CUT)  # it may not go on, so verifiers need not ask again to hear so
        return ProgramResult(exit_code=int(failed), stdout="", stderr=answer.text if failed else "")
