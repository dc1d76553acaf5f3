r"""A worker process of the grading pool: one JSON task a line on stdin, one JSON result a line on stdout.

Started as `python -m gmc.grading.worker CPU_SECONDS MEMORY_BYTES`. The kernel enforces the limits: a timer that counts CPU
time kills the process in the middle of a task, and an address-space limit turns runaway expressions into MemoryError. The
process ends by itself when stdin closes, and in the middle of a task through its lifeline, so none outlives its parent.
"""

import json
import os
import resource
import signal
import sys
from pathlib import Path

from gmc.lifeline import hold_on


def main() -> None:
    """Serve tasks until stdin closes."""
    hold_on()
    cpu_seconds, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from gmc.grading.symbolic import answers_equal

    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    sys.setrecursionlimit(3000)
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    # Libraries that print must not break the protocol.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    try:
        print(json.dumps({"ready": os.getpid()}), file=results, flush=True)
        for line in sys.stdin:
            task = json.loads(line)
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            result: dict[str, str | bool]
            try:
                result = {"correct": answers_equal(task["gold"], task["answer"])}
                # math-verify swallows MemoryError, so a "different" at the limit says nothing.
                if not result["correct"] and _peak_bytes() > 0.9 * memory_bytes:
                    result = {"limit": "memory"}
            except MemoryError:
                result = {"limit": "memory"}
            except Exception as error:  # SymPy raises anything; what it cannot decide is not equal, and the reason is reported.
                result = {"correct": False, "note": f"{type(error).__name__}: {error}"[:200]}
            signal.setitimer(signal.ITIMER_PROF, 0)
            print(json.dumps(result), file=results, flush=True)
            if "limit" in result:
                break
    except BrokenPipeError:
        pass
    os._exit(0)


def _peak_bytes() -> int:
    """The largest address space that the process has had; 0 where the system does not tell (and does not limit it either)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    return 1024 * int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmPeak:")))


if __name__ == "__main__":
    main()
