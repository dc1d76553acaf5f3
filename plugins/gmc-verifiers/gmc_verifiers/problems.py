"""gmc-verifiers-problems ENV FILE: the tasks of an environment as a problem file of gmc."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from gmc.errors import GmcError, UsageError
from gmc.store.files import strict_json, write_text
from gmc_verifiers.environment import KEY, TASK


def rows(name: str, limit: int | None) -> Iterator[dict[str, Any]]:
    """One row a task: id, question, answer where the task has one, its index and its key.

    Raises `UsageError` for an environment that cannot be played, or has no end and no limit was given.
    """
    from gmc_verifiers.loading import load

    taskset = load(name).taskset
    if limit is None and not taskset.bounded:
        raise UsageError(f"{name} has tasks without end; say how many to write with --limit N")
    for index, task in enumerate(islice(iter(taskset), limit)):
        answer = getattr(task.data, "answer", "")
        yield {
            "id": f"{name}-{index}",
            "question": task.data.prompt_text or f"{name} task {index}: the environment asks when it is played",
            "answer": answer if isinstance(answer, str) else strict_json(answer),
            TASK: index,
            KEY: task.key,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="gmc-verifiers-problems", description=__doc__)
    parser.add_argument("env", help="name of an installed environment of verifiers")
    parser.add_argument("file", type=Path, help="the problem file to write, .jsonl")
    parser.add_argument("--limit", type=int, help="only the first so many tasks")
    given = parser.parse_args(arguments)
    try:
        written = [strict_json(row) for row in rows(given.env, given.limit)]
        if not written:
            raise UsageError(f"{given.env} has no tasks")
        write_text(given.file, "".join(f"{row}\n" for row in written))
    except GmcError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{len(written)} problems of {given.env} in {given.file}")
    return 0
