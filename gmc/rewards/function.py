"""Any Python function as a reward, called as TRL calls it, in a process of its own.

    def short(prompts, completions, completion_ids, **columns) -> list[float | None]

`columns` are those of the data file, one value a response, with `question` and `answer` as gmc reads them where the file has no
column of that name; a function without `**columns` gets what it names. It may be async, and give None where it does not apply.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from gmc.errors import GmcError
from gmc.registry import saying_so
from gmc.rewards.base import NOT_APPLICABLE, Reward, Sample, Score, TrainerState
from gmc.rewards.process import Worker, WorkerDiedError, WorkerTimeoutError
from gmc.rewards.specs import RewardSpec
from gmc.store.files import strict_json

log = logging.getLogger(__name__)

Form = Literal["text", "messages"]
OnError = Literal["stop", "zero"]
START_SECONDS = 180.0
LOADED = ({"refused"}, {"binary"}, {"functions"})
SCORED = ({"refused"}, {"rewards", "extra", "metrics"})
OWN_COLUMNS = ("prompt", "completion", "prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
"""Columns of a data file that the function does not get, because something else has their name."""


def load(worker: Worker, question: list[Any], what: str, kind: type[GmcError]) -> Mapping[str, Any]:
    """Have a worker import the file or module that its question begins with; what: asks for it. Raises `kind` in one line."""
    place = question[0]
    try:
        with saying_so(f"importing {place} for {what}"):
            return dict(worker.ask({"load": question}, START_SECONDS, LOADED))
    except WorkerTimeoutError as error:
        raise kind(
            f"{what}: importing {place} took longer than {START_SECONDS:g} s and was stopped; do there what is quick, and the "
            "rest in the function when it is first called"
        ) from error
    except WorkerDiedError as error:
        raise kind(f"{what}: {error} while {place} was imported; repair it") from error


class RewardError(GmcError):
    """A reward function failed: it raised, gave no number, took too long, or ended its process."""


class FunctionReward(Reward):
    """Calls one function with the responses of a batch.

    spec: which function; form: whether prompts and completions are texts or lists of messages; seconds: how long one call may
    take; on_error: "zero" gives every response of a call that fails the reward 0 and the status "error", and counts them.
    """

    name = "function"
    summary = "any function in TRL's convention"
    needs_answer = False

    def __init__(self, spec: RewardSpec, *, form: Form = "text", seconds: float = 60.0, on_error: OnError = "stop") -> None:
        super().__init__()
        self.spec = spec
        self._form = form
        self._seconds = seconds
        self._on_error = on_error
        self._state = TrainerState()
        self._worker = Worker("gmc.rewards.calling")
        self._metrics: dict[str, list[float]] = {}

    def start(self) -> None:
        """Import the function, and learn whether it says of itself that it is binary. Raises `RewardError` in one line."""
        if self._worker.running:
            return
        call = [list(self.spec.arguments), dict(self.spec.keywords)] if self.spec.called else None
        answer = load(self._worker, [self.spec.place, self.spec.attribute, call], f"--reward {self.spec}", RewardError)
        if "refused" in answer:
            self._worker.close()
            raise RewardError(f"--reward {self.spec}: {answer['refused']}")
        self.binary = answer["binary"]

    def begin(self, state: TrainerState) -> None:
        self._state = state

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        if not samples:
            return []
        self.start()
        try:
            return self._scores(samples, self._call(samples))
        except RewardError as error:
            if self._on_error == "stop":
                own = " --set reward.code=auto, which takes the repaired file" if self.spec.is_file else ""
                raise RewardError(f"{error}{self._culprit(samples)}. Repair it and go on with --resume{own}") from error
            log.warning("%s; its %d responses get 0", error, len(samples))
            return [Score(0.0, "error", note=str(error)) for _ in samples]

    def metrics(self) -> Mapping[str, float]:
        means = {name: sum(values) / len(values) for name, values in self._metrics.items()}
        self._metrics.clear()
        return means

    def close(self) -> None:
        self._worker.close()

    def _call(self, samples: Sequence[Sample]) -> dict[str, Any]:
        with self._named(f" on {len(samples)} responses"):
            answer = self._worker.ask({"inputs": self.inputs(samples), "state": vars(self._state)}, self._seconds, SCORED)
        if "refused" in answer:
            raise RewardError(f"reward {self.spec.unweighted}: {answer['refused']}")
        odd = [reward for reward in answer["rewards"] if self.binary and reward not in (0, 1, None)]
        if odd:
            raise RewardError(f"reward {self.spec.unweighted}: it says of itself that it is binary, and a reward is {odd[0]:g}")
        return dict(answer)

    @contextmanager
    def _named(self, when: str) -> Iterator[None]:
        try:
            yield
        except WorkerTimeoutError as error:
            raise RewardError(f"reward {self.spec.unweighted}{when}: {error} (reward.seconds); it was stopped") from error
        except WorkerDiedError as error:
            raise RewardError(f"reward {self.spec.unweighted}{when}: {error}") from error
        except TypeError as error:
            raise RewardError(f"reward {self.spec.unweighted}: a column cannot be handed over ({error})") from error

    def inputs(self, samples: Sequence[Sample]) -> dict[str, list[Any]]:
        """What the function is given by name, each a list with one entry a response."""
        texts = self._form == "text"
        names = dict.fromkeys(name for sample in samples for name in sample.problem.fields if name not in OWN_COLUMNS)
        columns = {name: [sample.problem.fields.get(name) for sample in samples] for name in names}
        return {
            "question": [sample.problem.question for sample in samples],
            "answer": [sample.problem.answer for sample in samples],
            **columns,
            "prompts": [sample.prompt if texts else _asked(sample) for sample in samples],
            "completions": [sample.text if texts else _answered(sample) for sample in samples],
            "completion_ids": [list(sample.token_ids) for sample in samples],
        }

    def _scores(self, samples: Sequence[Sample], answer: Mapping[str, Any]) -> list[Score]:
        for name, value in answer["metrics"].items():
            self._metrics.setdefault(name, []).append(value)
        extra = answer["extra"]
        scores = []
        for index, reward in enumerate(answer["rewards"]):
            note = strict_json({name: values[index] for name, values in extra.items()}) if extra else None
            scores.append(Score(reward or 0.0, NOT_APPLICABLE if reward is None else "scored", note=note))
        return scores

    def _culprit(self, samples: Sequence[Sample]) -> str:
        """The first problem on whose responses alone the function fails as well; empty where it fails on none of them alone."""
        groups: dict[str, list[Sample]] = {}
        for sample in samples:
            groups.setdefault(sample.problem.problem_id, []).append(sample)
        for problem_id, group in groups.items():
            try:
                self.start()
                self._call(group)
            except RewardError:
                return f" (on problem {problem_id})"
        return ""


def _asked(sample: Sample) -> list[Mapping[str, str]]:
    return list(sample.messages) or [{"role": "user", "content": sample.prompt}]


def _answered(sample: Sample) -> list[Mapping[str, str]]:
    return list(sample.turns) or [{"role": "assistant", "content": sample.text}]
