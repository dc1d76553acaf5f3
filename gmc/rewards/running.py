"""Running somebody's code once: in a process of its own, in a folder of its own, to an end in time, and nothing left behind."""

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gmc.rewards import jail
from gmc.rewards.process import kill_group

SHOWN = 300
"""Characters of an error that are kept."""


@dataclass(frozen=True)
class Limits:
    """What one run may use. cpu_seconds and wall_seconds of time; memory_bytes of address space; file_bytes a file.

    needs: the kernel's layers without which nothing is run, of "files", "capabilities", "calls".
    """

    cpu_seconds: float = 5.0
    wall_seconds: float = 15.0
    memory_bytes: int = 1 << 30
    file_bytes: int = 16 << 20
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ran:
    """How a run ended.

    ending: "done" (to its last line), "failed" (an exception or an early exit), "timeout", "crash" (killed by a signal) or
    "unheld" (the kernel lacks what `Limits.needs` names). output: what it printed, cut at file_bytes; error: the last line that
    it wrote to standard error.
    """

    ending: str
    output: str
    error: str


def run_code(code: str, tests: Sequence[str] = (), stdin: str = "", *, limits: Limits) -> Ran:
    """Run `code`, then `tests` in the same names, with `stdin` on standard input. Never raises for what the code does."""
    home = Path(tempfile.mkdtemp(prefix="gmc-code-"))
    try:
        folder = home / "work"
        folder.mkdir()
        word = secrets.token_hex(16)
        job = {**vars(limits), "code": code, "tests": list(tests), "folder": str(folder), "word": word}
        (home / "job").write_text(json.dumps(job), "utf-8")
        (home / "in").write_bytes(stdin.encode("utf-8", "surrogatepass"))
        return _run(home, folder, word, limits)
    finally:
        _remove(home)


def _run(home: Path, folder: Path, word: str, limits: Limits) -> Ran:
    reader, writer = os.pipe()
    with open(home / "in", "rb") as given, open(home / "out", "wb") as out, open(home / "err", "wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-I", jail.__file__, str(home / "job"), str(writer)],
            stdin=given,
            stdout=out,
            stderr=err,
            cwd=folder,
            env={"HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
            pass_fds=(writer,),
            start_new_session=True,
        )
    os.close(writer)
    deadline = time.monotonic() + limits.wall_seconds
    try:
        select.select([reader], [], [], limits.wall_seconds)  # the word that it is done, or its end
        said = os.read(reader, 1000) if select.select([reader], [], [], 0)[0] else b""
        late = not said and not _ends(process, deadline)
    finally:
        os.close(reader)
        kill_group(process.pid)
        code = process.wait()
    output = (home / "out").read_bytes()[: limits.file_bytes].decode("utf-8", "replace")
    error = (home / "err").read_bytes()[-4000:].decode("utf-8", "replace").strip().rpartition("\n")[2][:SHOWN]
    return Ran(_ending(said.decode("ascii", "replace"), word, code, late), output, error)


def _ends(process: "subprocess.Popen[bytes]", deadline: float) -> bool:
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _ending(said: str, word: str, code: int, late: bool) -> str:
    if said == word:
        return "done"
    if late or code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "timeout"
    if said.startswith("held "):
        return "unheld"
    return "crash" if code < 0 else "failed"


def _remove(home: Path) -> None:
    """Remove the folder, whatever modes and depths the code gave to what is in it."""
    # rm goes down thousands of folders, where Python's own recursion ends, and rights are only wanted where it fails.
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        subprocess.run([*command, str(home)], check=False, stderr=subprocess.DEVNULL)
        if not home.exists():
            return
