"""The hash by which two files can be told to hold the same problems."""

import hashlib
from collections.abc import Sequence

from gmc.problems.base import Problem
from gmc.store.files import strict_json


def content_hash(problems: Sequence[Problem]) -> str:
    """SHA-256 (hex) over ids, questions and answers in order: one JSON array a line."""
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(strict_json([problem.problem_id, problem.question, problem.answer]).encode() + b"\n")
    return digest.hexdigest()
