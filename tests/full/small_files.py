"""Every change of every key of every small file that gmc reads (tests/test_small_files.py tries a sample of them)."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where pytest finds what tests share


def main() -> int:
    """Try all, or the kinds named as arguments; the exit code is 1 when an answer is wrong."""
    from small_files import try_all
    from test_small_files import READERS, make_legal

    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        legal = make_legal(Path(folder))
        for kind in sys.argv[1:] or READERS:
            part, read = READERS[kind]
            for line in try_all(legal[kind.split()[0]], part, read, Path(folder, "scratch")):
                wrong += 1
                print(line)
            print(f"{kind}: tried, {wrong} wrong so far", flush=True)
    return int(wrong > 0)
