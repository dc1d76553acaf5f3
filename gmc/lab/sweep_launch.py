"""What a launcher of a sweep is: it takes tasks and tells events until all have ended.

Three are here: processes of this machine (`sweep_pool`), Ray (`sweep_ray`) and Slurm (`sweep_slurm`).
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gmc.errors import UsageError
from gmc.lab.sweep_task import Task


@dataclass(frozen=True)
class Event:
    """What happened to a task. kind: progress, finished, failed, stopped or idle (nothing did for a while); found: see
    `sweep_task.execute`."""

    kind: str
    run: str = ""
    phase: str = ""
    done: int = 0
    total: int = 0
    error: str = ""
    trace: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)


class Launcher(Protocol):
    """Runs tasks side by side. As a context it leaves no process behind."""

    def run(self, tasks: Sequence[Task], stopping: Callable[[], bool]) -> Iterator[Event]:
        """Events until every task has ended; after `stopping` says so, no new task starts and those at work are stopped.

        An event "idle" comes now and then, so that a view stays alive.
        """
        ...


OpenLauncher = Callable[[Path, int, Mapping[str, str]], AbstractContextManager[Launcher]]
"""Made of the sweep's folder, the number of jobs side by side, and the launcher's own options."""

LAUNCHERS = {
    "local": "gmc.lab.sweep_pool:open_pool",
    "ray": "gmc.lab.sweep_ray:open_ray",
    "slurm": "gmc.lab.sweep_slurm:open_slurm",
}
NEEDS = {"ray": "ray", "slurm": "submitit"}


def load_launcher(name: str) -> OpenLauncher:
    """A launcher by name. Raises `UsageError` for an unknown one, and for one whose library is not installed."""
    if name not in LAUNCHERS:
        raise UsageError(f"--launcher {name}: there are {', '.join(LAUNCHERS)}")
    module, _, function = LAUNCHERS[name].partition(":")
    try:
        if name in NEEDS:
            importlib.import_module(NEEDS[name])
    except ImportError as error:
        raise UsageError(f"--launcher {name} needs {NEEDS[name]}: pip install 'gmc-rl[{name}]' ({error})") from error
    opened: OpenLauncher = getattr(importlib.import_module(module), function)
    return opened


def refuse_options(name: str, options: Mapping[str, str], known: Sequence[str] = ()) -> None:
    """Raise `UsageError` for an option that the launcher does not know."""
    for key in options:
        if key not in known:
            raise UsageError(f"--option {key}: launcher {name} knows {', '.join(known) or 'none'}")
