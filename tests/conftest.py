"""One thread a process: tests run side by side, and sums then do not depend on how many cores the machine has."""

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

collect_ignore = ["data", "mutation"]

KINDS = {"unit", "train", "process"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test says what it costs, in one of three kinds, so that `-m unit` is an inner loop one can trust."""
    for item in items:
        kinds = KINDS & {mark.name for mark in item.iter_markers()}
        if len(kinds) != 1:
            raise pytest.UsageError(
                f"{item.nodeid}: marked {sorted(kinds) or 'with none'} of unit, train and process; give one"
            )
