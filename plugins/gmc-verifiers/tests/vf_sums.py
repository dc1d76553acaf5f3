"""A single-turn environment for verifiers: sums, with two weighted rewards."""

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=1.0)
    async def right(self, trace) -> float:
        return float(trace.last_reply.strip() == self.data.answer)

    @vf.reward(weight=0.25)
    async def odd(self, trace) -> float:
        """Whether the digits of the answer have an odd sum: any model gets this right at times."""
        return float(sum(int(letter) for letter in trace.last_reply if letter in "0123456789") % 2)


class SumTaskset(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self):
        for number in range(4):
            data = SumData(prompt=f"What is {number}+1?", answer=str(number + 1))
            yield SumTask(data, self.config.task)


__all__ = ["SumTaskset"]
