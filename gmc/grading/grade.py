"""Grade responses against gold answers: extract, then decide in tiers, cheapest first."""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from gmc.errors import UsageError
from gmc.grading.extract import extract
from gmc.grading.gold import gold_problem
from gmc.grading.tiers import settle
from gmc.grading.verdict import Verdict


class Grader:
    """Grades in batches.

    counts: how often each status and each tier occurred, and `refused gold` for golds that cannot be graded.
    """

    def __init__(self, *, strict: bool = True) -> None:
        self.strict = strict
        self.counts: Counter[str] = Counter()

    def grade_many(self, pairs: Sequence[tuple[str, str]], *, truncated: Sequence[bool] | None = None) -> list[Verdict]:
        """Grade (gold, response) pairs; verdicts come back in the same order.

        truncated: one flag a pair; True when the response was cut at its length limit.
        """
        flags = [False] * len(pairs) if truncated is None else list(truncated)
        if len(flags) != len(pairs):
            raise UsageError(f"grade_many: {len(pairs)} pairs but {len(flags)} truncated flags; give one flag a pair")
        verdicts = [self._grade(gold, response, cut) for (gold, response), cut in zip(pairs, flags, strict=True)]
        self.counts.update(verdict.status for verdict in verdicts)
        return verdicts

    def _grade(self, gold: str, response: str, truncated: bool) -> Verdict:
        if gold_problem(gold) is not None:
            self.counts["refused gold"] += 1
            return Verdict(False, "unparseable", None, "none")
        answer = extract(response, strict=self.strict, truncated=truncated).text
        if answer is None:
            return Verdict(False, "unparseable", None, "none")
        correct, tier = settle(gold, answer)
        return Verdict(bool(correct), "correct" if correct else "incorrect", answer, tier)

    def close(self) -> None:
        """End the worker processes."""

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def grade_many(
    pairs: Sequence[tuple[str, str]], *, strict: bool = True, truncated: Sequence[bool] | None = None
) -> list[Verdict]:
    """Grade (gold, response) pairs; see `Grader.grade_many`."""
    with Grader(strict=strict) as grader:
        return grader.grade_many(pairs, truncated=truncated)
