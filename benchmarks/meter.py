"""Clocks, memory and machine facts for benchmarks, with no dependency but torch."""

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

STATUS = Path("/proc/self/status")


class Stopwatch:
    """Adds up seconds by name; waits for the GPU at both ends of a section.

    clock: "wall", or "cpu" for the CPU seconds of this process, which say more on a machine that others use too (run with
    one thread then, so that no thread burns time waiting for another).
    """

    def __init__(self, clock: str = "wall") -> None:
        self.seconds: dict[str, float] = {}
        self._now = time.process_time if clock == "cpu" else time.perf_counter

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        synchronize()
        started = self._now()
        yield
        synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + self._now() - started


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def resident_bytes() -> int:
    """Memory in use now: allocated on the GPU if there is one, else the resident set (Linux)."""
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else _status("VmRSS")


def reset_peak() -> None:
    """Start a new measurement of peak memory."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Peak memory since `reset_peak`."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else _status("VmHWM")


def _status(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def matmul_flops(dtype: torch.dtype, device: str, clock: str = "wall") -> float:
    """Floating-point operations per second of a large square matrix product: the best of several."""
    now = time.process_time if clock == "cpu" else time.perf_counter
    size = 8192 if device == "cuda" else 1024
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(8):
        synchronize()
        started = now()
        torch.mm(left, right)
        synchronize()
        best = min(best, now() - started)
    return 2 * size**3 / best


def interleaved(contenders: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[Any]]:
    """Call every contender in turn, `repeats` times round: what else the machine does then hits all of them alike."""
    results: dict[str, list[Any]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, call in contenders.items():
            results[name].append(call())
    return results


def timed(call: Callable[[], Any]) -> float:
    """Seconds of one call."""
    synchronize()
    started = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - started


def median(values: list[float]) -> float:
    """The median, as a plain float."""
    return float(statistics.median(values))


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else _processor()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows of one kind as an aligned table on stderr."""
    columns = list(rows[0])
    cells = [columns, *[[_cell(row.get(column)) for column in columns] for row in rows]]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    print(f"\n{title}", file=sys.stderr)
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), file=sys.stderr)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def publish(result: Any, path: Path | None) -> None:
    """Print a result as JSON on stdout, and write it to a file when asked."""
    text = json.dumps(result, indent=1)
    print(text)
    if path is not None:
        path.write_text(text + "\n")


def reply(value: Any) -> None:
    """Send one JSON line to the process that asked."""
    print(json.dumps(value), flush=True)
