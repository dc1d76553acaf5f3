"""The process that searches for patterns: `python -m gmc.rewards.searching`, one search a line, one answer a line."""

import re
import signal
import sys

from gmc.rewards.wire import dumps, loads

CPU_SECONDS = 1.0
OUT_OF_TIME = signal.SIGPROF
"""Ends the process in the middle of a search, and no busy machine changes when: the kernel counts CPU time."""


def main() -> None:
    """Serve [pattern, whole, text] until stdin closes: [whether it is found, what its group `answer` matched]."""
    signal.signal(OUT_OF_TIME, signal.SIG_DFL)
    for line in sys.stdin.buffer:
        text: str
        pattern, whole, text = loads(line)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        compiled = re.compile(pattern, re.DOTALL)
        match = compiled.fullmatch(text) if whole else compiled.search(text)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer = match.groupdict().get("answer") if match else None
        sys.stdout.buffer.write(dumps([match is not None, answer]))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
