"""One sampling process as the trainer sees it: its environment, its start, and one answer to each line."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gmc.config.settings import RunSettings
from gmc.errors import GmcError
from gmc.lifeline import Lifeline
from gmc.store.run_directory import RunDirectory

PROGRAM = ("-m", "gmc.generation.sampler_start")
END, END_SECONDS = '{"end": true}\n', 20.0
OF_TORCHRUN = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK"),
    *("ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
)


def sampler_environment(devices: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """What a sampling process sees: nothing of torchrun, and of the GPUs only its own.

    devices: numbers as torch counts them here, or "cpu" alone. CUDA reads the variable once, so it must be there before the
    process imports torch.
    """
    kept = {
        name: value for name, value in environment.items() if name not in OF_TORCHRUN and not name.startswith("TORCHELASTIC_")
    }
    visible = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if devices[0] == "cpu":
        own = [""]
    elif visible == [""]:
        own = list(devices)
    else:
        own = [visible[int(device)] for device in devices]
    return {**kept, "CUDA_VISIBLE_DEVICES": ",".join(own)}


class SamplerProcess:
    """Starts its process when it is first asked, and again after it died.

    devices: those it may see; folder: through which weights are handed over.
    """

    def __init__(self, name: str, devices: Sequence[str], run: RunDirectory, settings: RunSettings, folder: Path) -> None:
        self.name, self.log_file = name, run.engine_log(name)
        self._devices, self._run, self._folder = devices, run, folder
        device = "cpu" if devices[0] == "cpu" else "cuda"
        self._settings = settings.model_copy(update={"model": settings.model.model_copy(update={"device": device})})
        self._process: subprocess.Popen[str] | None = None
        self._lifeline: Lifeline | None = None
        self._closed = self._busy = False
        self._lock = threading.Lock()

    def __str__(self) -> str:
        number = self._process.pid if self._process else "not running"
        return f"{self.name} on {'+'.join(self._devices)} (process {number})"

    def ask(self, job: Mapping[str, Any]) -> bool:
        """Have a job done; False when the process died. Raises `GmcError` with what the process itself reports."""
        running = self._process is not None and self._process.poll() is None
        return (running or self._start()) and self._exchange(job)

    def close(self) -> None:
        """End the process: kill it if it is in the middle of something or does not end. May be called twice."""
        self.tell_to_end()
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if self._busy else END_SECONDS)
        self._process.kill()
        self._process.wait()
        self._let_go()

    def tell_to_end(self) -> None:
        """Let an idle process end and start none from now on, without waiting for it."""
        with self._lock:
            self._closed, process = True, self._process
        if process is None or self._busy:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it is gone, or was told before
            process.stdin.write(END)
            process.stdin.close()

    def _start(self) -> bool:
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, open(self.log_file, "ab") as log:
            if self._closed:
                return False
            self._let_go()
            self._lifeline = Lifeline()
            self._process = subprocess.Popen(
                [sys.executable, *PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=sampler_environment(self._devices, os.environ) | self._lifeline.environment,
                pass_fds=[self._lifeline.reader],
                start_new_session=True,  # Ctrl-C and torchrun's signals are for the trainer, which ends its samplers
            )
            self._lifeline.started()
        settings = self._settings
        return self._exchange(
            {
                "run": str(self._run.path.absolute()),
                "name": self.name,
                "settings": settings.model_dump(mode="json"),
                "origins": dict(settings.origins),
                "initial": str(self._folder / "initial.safetensors"),
            }
        )

    def _let_go(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            lifeline.close()

    def _exchange(self, record: Mapping[str, Any]) -> bool:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        self._busy = True
        try:
            process.stdin.write(json.dumps(record) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError):  # ValueError: closed meanwhile
            line = ""
        finally:
            self._busy = False
        if not line:
            process.kill()  # what closed its output ends, and until it has ended it seems to live
            process.wait()
            return False
        answer = json.loads(line)
        if "error" in answer:
            raise GmcError(f"{self}: {answer['error']}")
        return True
