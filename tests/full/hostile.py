"""Every hostile program against the reward `code`, and how each ended; some minutes.

Exit code 1 when one ends otherwise than it may, late, or leaves something behind.
"""

import sys
import time
from pathlib import Path

from gmc.rewards.running import run_code

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where pytest finds what tests share


def main() -> int:
    from hostile_programs import PROGRAMS
    from left_behind import adopting, left_behind
    from test_rewards_code import LIMITS

    wrong = 0
    for name, (source, endings) in PROGRAMS.items():
        before, started = left_behind(), time.monotonic()
        with adopting():
            ran = run_code(source, ["pass"], limits=LIMITS)
            took = time.monotonic() - started
            left = left_behind(before)
        ending = {"done": "passed"}.get(ran.ending, ran.ending)
        good = ending in endings and took < LIMITS.wall_seconds + 5 and not left
        wrong += not good
        print(f"{'ok   ' if good else 'WRONG'} {took:5.1f} s  {ending:8} {name}: {ran.error[:80]}", *sorted(left), flush=True)
    print(f"{len(PROGRAMS)} programs, {wrong} wrong")
    return int(wrong > 0)
