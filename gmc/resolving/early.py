"""Settings resolved, after a look at what needs no torch to be refused: names, a model or problems that are nowhere."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmc.config.layers import FIELDS, Layers, lay
from gmc.delays.base import DelayContext
from gmc.delays.registry import arguments_of, delay_class
from gmc.engines.registry import require_engine
from gmc.environments.build import complete as complete_environment
from gmc.errors import UsageError
from gmc.estimators.names import require_estimators
from gmc.loading.named import require_model
from gmc.problems.load import load_problems, require_source
from gmc.problems.readers import READERS
from gmc.resolving.earlier import traced
from gmc.rewards.build import complete as complete_rewards

if TYPE_CHECKING:
    from gmc.config.settings import RunSettings

MODEL, PROBLEMS = "model.source", "problems.source"
CONTEXT = ("rollout.prompts", "rollout.group_size", "seed", "train.updates")
"""What a delay is checked with, in the order of `DelayContext`."""
SMALL_FILE_BYTES = 2**20
"""Files of problems up to here are read at once; larger ones wait until they are needed."""


def resolve_asked(
    *,
    earlier: Layers | None = None,
    recipe: str | None = None,
    flags: Mapping[str, Any] | None = None,
    flag_names: Mapping[str, str] | None = None,
    assignments: Sequence[str] = (),
    only_settings: bool = False,
) -> "RunSettings":
    """`gmc.resolving.resolve.resolve_settings`, but that a mistyped name, model or data set is refused within a second.

    only_settings: nothing will be loaded, as with --dry-run, so nothing need be there. Raises `UsageError` and `DataError`.
    """
    layers = lay(earlier=earlier, recipe=recipe, flags=flags, flag_names=flag_names, assignments=assignments)
    look = partial(_look_around, only_names=only_settings)
    try:
        look(layers)
    except UsageError as error:
        raise traced(error, layers, look) from error
    from gmc.resolving.resolve import resolve  # last: it imports torch

    return resolve(layers)


def _look_around(layers: Layers, *, only_names: bool) -> None:
    """Refuse the name of a plug-in, and unless only_names a model, a delay or problems, that cannot be."""

    def said(key: str) -> Any:
        return layers.values[key] if key in layers.values else FIELDS[key].get_default(call_default_factory=True)

    _require_names(said)
    if only_names:
        return
    require_model(said(MODEL))
    delay = delay_class(str(said("delay")))
    if delay.generates and not delay.live:  # others ask no problems here
        require_source(said(PROBLEMS))
        look_into(said(PROBLEMS), said("problems.question_field"), said("problems.answer_field"))
    delay.check(arguments_of(str(said("delay"))), DelayContext(*map(said, CONTEXT)))


def _require_names(said: Callable[[str], Any]) -> None:
    """Refuse the name of a plug-in that is not installed, and a reward or environment that cannot be built."""
    named = {"estimator.name": lambda name: require_estimators([name]), "rollout.engine": require_engine}
    completed = {"rollout.environment": complete_environment}
    for key, require in (named | completed).items():
        if isinstance(value := said(key), str):  # anything else is refused with its own words
            require(value)
    parts = said("reward.parts")
    if isinstance(parts, str | list):
        complete_rewards([parts] if isinstance(parts, str) else parts)


def look_into(source: str, question_field: str | None, answer_field: str | None) -> None:
    """Refuse a small file of problems that cannot be read or has no field for questions; answers are the reward's affair."""
    path = Path(source)
    if path.suffix.lower() in READERS and path.is_file() and path.stat().st_size <= SMALL_FILE_BYTES:
        load_problems(
            source,
            question_field=question_field or None,
            answer_field=answer_field or None,
            prepare=lambda problem: problem,
            needs_answer=False,
        )
