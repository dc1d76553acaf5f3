"""The program of a sampling process: `python -m gmc.generation.sampler_start`.

It ends with its trainer from its first moment on. `gmc.generation.sampler` reads the end of the trainer from standard input as
well, but only once torch is imported, which takes seconds.
"""

import sys

from gmc.lifeline import hold_on


def main() -> int:
    """Answer jobs until the end; the exit status."""
    hold_on()
    from gmc.generation.sampler import main as answer_jobs

    return answer_jobs()


if __name__ == "__main__":
    sys.exit(main())
