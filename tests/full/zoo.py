"""Every architecture of the zoo through everything; writes tests/zoo/results.jsonl and docs/models.md. Some minutes."""

import argparse
import json
import logging
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import asdict
from pathlib import Path

import transformers

from docs.make_models_page import PAGE, RESULTS, page
from tests.zoo.drive import drive
from tests.zoo.table import TABLE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="architectures to try; without any, all, and the results are written")
    names = parser.parse_args().names
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    transformers.utils.logging.set_verbosity_error()
    outcomes, failed = [], 0
    chosen = [row for row in TABLE if not names or row.name in names]
    for number, row in enumerate(chosen, 1):
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome = drive(row, Path(folder))
            except Exception:  # one broken architecture must not hide the others; it fails the whole at the end
                traceback.print_exc()
                failed += 1
                continue
        outcomes.append(outcome)
        seconds = time.perf_counter() - started
        print(f"{number}/{len(chosen)} {row.name}: {outcome.refusal or outcome.decoding} ({seconds:.1f} s)", flush=True)
    if not names and not failed:
        RESULTS.write_text("".join(json.dumps(asdict(outcome)) + "\n" for outcome in outcomes))
        PAGE.write_text(page())
    refused = sum(bool(outcome.refusal) for outcome in outcomes)
    print(f"{len(outcomes) - refused} work, {refused} are refused, {failed} failed", file=sys.stderr)
    return 1 if failed else 0
