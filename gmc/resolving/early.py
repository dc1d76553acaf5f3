"""Settings resolved, after a look at what can be refused before torch is loaded: a model or problems that are nowhere."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gmc.config.layers import FIELDS, Layers, lay
from gmc.delays.registry import delay_class
from gmc.loading.named import require_model
from gmc.problems.load import require_source

if TYPE_CHECKING:
    from gmc.config.settings import RunSettings

MODEL, PROBLEMS = "model.source", "problems.source"


def resolve_asked(
    *,
    earlier: Layers | None = None,
    recipe: str | None = None,
    flags: Mapping[str, Any] | None = None,
    flag_names: Mapping[str, str] | None = None,
    assignments: Sequence[str] = (),
    only_settings: bool = False,
) -> "RunSettings":
    """`gmc.resolving.resolve.resolve_settings`, but that a mistyped model or data set is refused within a second.

    only_settings: nothing will be loaded, as with --dry-run, so nothing need be there. Raises `UsageError` and `DataError`.
    """
    layers = lay(earlier=earlier, recipe=recipe, flags=flags, flag_names=flag_names, assignments=assignments)
    if not only_settings:
        require_model(layers.values.get(MODEL, FIELDS[MODEL].default))
        delay = delay_class(layers.values.get("delay", FIELDS["delay"].default))
        if delay.generates and not delay.live:  # others ask no problems here
            require_source(layers.values.get(PROBLEMS, FIELDS[PROBLEMS].default))
    from gmc.resolving.resolve import resolve  # last: it imports torch

    return resolve(layers)
