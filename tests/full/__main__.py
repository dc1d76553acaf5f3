"""`python -m tests.full NAME [ARGUMENTS]`: run the long check of that name; without a name, list them."""

import importlib
import pkgutil
import sys
from pathlib import Path

NAMES = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]) if module.name != "__main__")


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in NAMES:
        print(f"usage: python -m tests.full NAME; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    sys.argv = [f"tests.full {name}", *sys.argv[2:]]
    return int(importlib.import_module(f"tests.full.{name}").main() or 0)


if __name__ == "__main__":
    sys.exit(main())
