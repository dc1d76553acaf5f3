"""A multi-turn environment for verifiers: guess a number within three turns; earlier is better. The environment opens."""

import verifiers.v1 as vf


class GuessData(vf.TaskData):
    number: int


class GuessTask(vf.Task[GuessData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def found(self, trace) -> float:
        return 1.0 / trace.num_turns if trace.last_reply.strip() == str(self.data.number) else 0.0

    @vf.reward(weight=0.125)
    async def cut(self, trace) -> float:
        return float(trace.is_truncated)


class GuessTaskset(vf.Taskset[GuessTask, vf.TasksetConfig]):
    def load(self):
        for number in (3, 7):
            yield GuessTask(GuessData(number=number, system_prompt="Say a number."), self.config.task)


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, max_turns=3)


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task, agents):
        async with agents.player.interaction(task) as game:
            said = await game.turn("Guess.")
            while not said.terminated and (guess := said.last_reply.strip()) != str(task.data.number):
                low = guess.isdigit() and int(guess) < task.data.number
                said = await game.turn("Higher." if low else "Lower.")


__all__ = ["GuessEnv", "GuessTaskset"]
