"""Does the response's code pass the problem's tests? Run in processes with limits, which are no sandbox: docs/rewards.md."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pydantic import Field

from gmc.errors import DataError, GmcError
from gmc.problems.base import Problem
from gmc.rewards.base import Reward, RewardSettings, Sample, Score
from gmc.rewards.code_tests import CodeTest, extract_code, read_tests, same_output
from gmc.rewards.running import Limits, Ran, run_code


class Code(Reward):
    """1 where the Python in the response passes every test of its problem, else 0; with share=True the share of tests passed.

    The code is the last fenced block, else the whole response. Tests stand in a column: assertions, or inputs and outputs.
    Each test runs in a process of its own with limits of time, memory and files. It is meant for the mistakes of a model, and
    is no sandbox against an attacker.
    """

    name = "code"
    summary = "1 if the response's Python passes the problem's unit tests, else 0"
    needs_answer = False

    class Settings(RewardSettings):
        """Where the tests are, and what one of them may use."""

        field: str = Field("tests", description="column of the data file that holds the tests")
        share: bool = Field(False, description="whether the reward is the share of tests passed")
        cpu_seconds: float = Field(5.0, gt=0, description="CPU time of one test; rounded up to whole seconds")
        wall_seconds: float = Field(15.0, gt=0, description="time of one test, waiting included")
        memory_mb: int = Field(1024, ge=64, description="address space of one test, in MiB")
        file_mb: int = Field(16, ge=1, description="largest file that a test may write, its output included, in MiB")
        require_confinement: bool = Field(
            False, description="refuse to run where the kernel does not confine files and system calls (Landlock, seccomp)"
        )

    def __init__(self, settings: RewardSettings | None = None) -> None:
        super().__init__(settings)
        self.binary = not self.settings.share
        said = self.settings
        held = ("files", "calls") if said.require_confinement else ()
        self._limits = Limits(said.cpu_seconds, said.wall_seconds, said.memory_mb << 20, said.file_mb << 20, held)

    def prepare(self, problem: Problem) -> Problem:
        if self.settings.field not in problem.fields:
            columns = ", ".join(problem.fields) or "none"
            raise DataError(f"no column {self.settings.field} with tests (there are {columns}); name it by code(field='...')")
        read_tests(problem.fields[self.settings.field])
        return problem

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
            return list(threads.map(self._score, samples))

    def _score(self, sample: Sample) -> Score:
        code = extract_code(sample.text)
        if code is None:
            return Score(0.0, "no code")
        tests = read_tests(sample.problem.fields[self.settings.field])
        passed, first = 0, None
        for number, test in enumerate(tests, start=1):
            ran = self._run(code, test)
            status = _status(ran, test)
            passed += status == "passed"
            if status != "passed" and first is None:
                first = Score(0.0, status, note=f"test {number} of {len(tests)}: {ran.error or status}")
                if not self.settings.share:
                    return first
        if first is None:
            return Score(1.0, "passed")
        return Score(passed / len(tests), first.status, note=first.note)

    def _run(self, code: str, test: CodeTest) -> Ran:
        ran = run_code(code, [test.source] if test.source else [], test.stdin, limits=self._limits)
        if ran.ending == "unheld":
            raise GmcError(
                "reward code: this kernel does not confine files and system calls (Landlock and seccomp), and "
                "require_confinement asks for it; run elsewhere, or give it up"
            )
        return ran


def _status(ran: Ran, test: CodeTest) -> str:
    """How a test ended. A program that leaves by sys.exit has run to its end as well, where its output is what counts."""
    if test.stdout is not None and ran.ending in ("done", "failed") and not ran.error:
        return "passed" if same_output(ran.output, test.stdout) else "failed"
    return "passed" if ran.ending == "done" and test.stdout is None else ran.ending if ran.ending != "done" else "failed"
