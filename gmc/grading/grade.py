"""Grade responses against gold answers: refuse bad golds, extract, then decide in tiers, cheapest first."""

import atexit
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Literal

from gmc.errors import UsageError
from gmc.grading.compare import judge_tiers
from gmc.grading.extract import extract, find_boxes
from gmc.grading.normalize import MAX_ANSWER, normalize
from gmc.grading.pool import Outcome, Pool
from gmc.grading.structure import balanced

Status = Literal["correct", "incorrect", "unparseable", "timeout", "crash"]


@dataclass(frozen=True)
class Verdict:
    """The result of grading one response against one gold answer.

    status: "unparseable" = no answer found in the response; "timeout" = the check exceeded its limit (scored as wrong, and
        counted apart); "crash" = the checking process died (scored as wrong, counted apart).
    prediction: the extracted answer text, None when there is none.
    tier: what decided: "none" (nothing extracted), "text", "number", "symbolic".
    """

    correct: bool
    status: Status
    prediction: str | None
    tier: str

    @property
    def how(self) -> str | None:
        """How answer and gold were compared, for a person; None where there was no answer."""
        return HOW.get(self.tier)


HOW = {"text": "compared as text", "number": "compared as numbers", "symbolic": "compared by computer algebra"}
"""By tier."""

_MISSING = re.compile(r"nan|none|null|n/a|\[\]|\{\}|\?+|\.+|-+", re.IGNORECASE)
_PYTHON_LIST = re.compile(r"\[\s*(['\"]).*\1\s*\]", re.DOTALL)
_MAX_WORDS = 25


@lru_cache(maxsize=8192)
def gold_problem(gold: str) -> str | None:
    """Why this gold answer cannot be graded, in a few words; None when it can.

    Words are fine golds and are compared as text. A gold that is empty, a placeholder, a worked solution, or whose brackets do
    not close is refused: no answer to it may ever earn a reward.
    """
    if not gold.strip():
        return "the answer is empty"
    if len(gold) > MAX_ANSWER:
        return f"the answer is longer than {MAX_ANSWER} characters; a worked solution is no answer"
    if find_boxes(gold):
        return r"the answer holds a \boxed{...}; give only what stands in the box"
    if _PYTHON_LIST.fullmatch(gold.strip()):
        return "the answer is a list written as text; give the value in it"
    text = normalize(gold)
    if not text:
        return "nothing is left of the answer without its delimiters"
    if _MISSING.fullmatch(gold.strip()):
        return f"{gold.strip()!r} stands for a missing answer"
    if not balanced(text):
        return "its brackets or braces do not close"
    if len(re.findall(r"[^\W\d_]{2,}", re.sub(r"\\[a-zA-Z]+", " ", text))) > _MAX_WORDS:
        return f"the answer has more than {_MAX_WORDS} words; a worked solution is no answer"
    return None


_REMEMBERED = 20_000
_STATUS: dict[Outcome, Status] = {"equal": "correct", "different": "incorrect", "timeout": "timeout", "crash": "crash"}


class Grader:
    """Grades in batches; holds the pool of worker processes, which starts with the first answer that needs one.

    Use as a context manager or call `close`. Safe to use from several threads.

    counts: how often each status occurred, plus `refused gold` for golds that cannot be graded (see `gold_problem`) and
    `symbolic` for comparisons that a worker made.
    """

    def __init__(self, *, strict: bool = True, pool: Pool | None = None) -> None:
        """strict: for training; with strict=False a number that merely stands last in a response counts as its answer."""
        self.strict = strict
        self.pool = Pool() if pool is None else pool
        self.counts: Counter[str] = Counter()
        self._known: OrderedDict[tuple[str, str], Outcome] = OrderedDict()
        self._lock = threading.Lock()

    def grade_many(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        truncated: Sequence[bool] | None = None,
        thinking: Sequence[bool] | None = None,
    ) -> list[Verdict]:
        """Grade (gold, response) pairs; verdicts come back in the same order.

        truncated: one flag a pair, True when the response was cut at its length limit; it then scores only with an answer that
        is visibly complete. thinking: one flag a pair, True when its prompt opened a thinking block. A pair whose gold cannot
        be graded is never correct: its verdict is "unparseable", counted apart.
        Raises `GmcError` when worker processes keep dying.
        """
        cuts, opened = _flags("truncated", truncated, len(pairs)), _flags("thinking", thinking, len(pairs))
        verdicts: list[Verdict | None] = []
        open_tasks: dict[tuple[str, str], list[int]] = {}
        refused = 0
        for (gold, response), cut, thinks in zip(pairs, cuts, opened, strict=True):
            refused += (unusable := gold_problem(gold) is not None)
            answer = None if unusable else extract(response, strict=self.strict, truncated=cut, thinking=thinks).text
            verdicts.append(self._without_worker(gold, answer))
            if verdicts[-1] is None and answer is not None:
                open_tasks.setdefault((gold, answer), []).append(len(verdicts) - 1)
        for task, outcome in self._symbolic(list(open_tasks)).items():
            for index in open_tasks[task]:
                verdicts[index] = Verdict(outcome == "equal", _STATUS[outcome], task[1], "symbolic")
        complete = [verdict for verdict in verdicts if verdict is not None]
        with self._lock:
            self.counts.update(verdict.status for verdict in complete)
            self.counts.update({"refused gold": refused, "symbolic": len(open_tasks)})
        return complete

    def _without_worker(self, gold: str, answer: str | None) -> Verdict | None:
        """The verdict of the tiers that need no worker; None when they cannot decide."""
        if answer is None:
            return Verdict(False, "unparseable", None, "none")
        correct, tier = judge_tiers(gold, answer)
        return None if correct is None else Verdict(correct, "correct" if correct else "incorrect", answer, tier)

    def _symbolic(self, tasks: list[tuple[str, str]]) -> dict[tuple[str, str], Outcome]:
        """Outcomes of comparisons by the worker pool, each distinct pair once; timeouts and crashes are not remembered."""
        with self._lock:
            found = {task: self._known[task] for task in tasks if task in self._known}
        new = [task for task in tasks if task not in found]
        if not new:
            return found
        outcomes = dict(zip(new, self.pool.run(new), strict=True))
        with self._lock:
            self._known.update({task: outcome for task, outcome in outcomes.items() if outcome in ("equal", "different")})
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found | outcomes

    def close(self) -> None:
        """End the worker processes."""
        self.pool.close()

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _flags(name: str, flags: Sequence[bool] | None, pairs: int) -> list[bool]:
    """One flag a pair, False where none was given."""
    found = [False] * pairs if flags is None else list(flags)
    if len(found) != pairs:
        raise UsageError(f"grade_many: {pairs} pairs but {len(found)} {name} flags; give one flag a pair")
    return found


_shared_pool: Pool | None = None
_shared_lock = threading.Lock()


def grade_many(
    pairs: Sequence[tuple[str, str]], *, strict: bool = True, truncated: Sequence[bool] | None = None
) -> list[Verdict]:
    """Grade (gold, response) pairs with one pool of workers for the whole process; see `Grader.grade_many`."""
    global _shared_pool
    with _shared_lock:
        if _shared_pool is None:
            _shared_pool = Pool()
            atexit.register(_shared_pool.close)
    return Grader(strict=strict, pool=_shared_pool).grade_many(pairs, truncated=truncated)
