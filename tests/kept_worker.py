"""One process for many rewards or tools in turn, where a test is not about the process: starting one is most of the cost."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gmc.rewards.process import Worker


class Kept:
    """What a reward or an environment takes for a worker of its own. It loads its function into the kept process when it is
    first asked, and closing it leaves the process. A process that a question ends is started again, as ever."""

    def __init__(self, process: Worker) -> None:
        self._process, self._asked = process, False

    @property
    def running(self) -> bool:
        return self._asked and self._process.running

    def ask(self, *arguments: Any) -> Any:
        self._asked = True
        return self._process.ask(*arguments)

    def close(self) -> None:
        self._asked = False


@contextmanager
def kept_workers() -> Iterator[None]:
    """Within it, rewards and tools share one process a kind. Only for such as are used one after the other."""
    processes: dict[str, Worker] = {}

    def kept(module: str) -> Kept:
        return Kept(processes.setdefault(module, Worker(module)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gmc.rewards.function.Worker", kept)
        patch.setattr("gmc.environments.functions.Worker", kept)
        try:
            yield
        finally:
            for process in processes.values():
                process.close()
