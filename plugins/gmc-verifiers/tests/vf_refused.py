"""Environments for verifiers that gmc does not play, one a class."""

import verifiers.v1 as vf
from vf_guess import GuessEnv, GuessTaskset


class Two(vf.EnvConfig):
    solver: vf.AgentConfig = vf.AgentConfig()
    critic: vf.AgentConfig = vf.AgentConfig()


class Codex(vf.EnvConfig):
    solver: vf.AgentConfig = vf.AgentConfig(harness={"id": "codex"})


class Bash(vf.EnvConfig):
    solver: vf.AgentConfig = vf.AgentConfig(harness={"id": "bash"})


class Elsewhere(vf.EnvConfig):
    solver: vf.AgentConfig = vf.AgentConfig(model="another")


class TwoEnv(vf.Env[Two]):
    async def run(self, task, agents): ...


class CodexEnv(vf.Env[Codex]):
    async def run(self, task, agents): ...


class BashEnv(vf.Env[Bash]):
    async def run(self, task, agents): ...


class ElsewhereEnv(vf.Env[Elsewhere]):
    async def run(self, task, agents): ...


class TwiceEnv(GuessEnv):
    async def run(self, task, agents):
        await super().run(task, agents)
        await super().run(task, agents)


class RaisesEnv(GuessEnv):
    async def run(self, task, agents):
        async with agents.player.interaction(task) as game:
            await game.turn("Guess.")
            raise RuntimeError("no luck")


class SlowEnv(GuessEnv):
    async def run(self, task, agents):
        import asyncio

        await asyncio.sleep(60)


__all__ = ["GuessTaskset"]
