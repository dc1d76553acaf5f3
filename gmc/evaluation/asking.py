"""From what a person asks of an evaluation to a complete request and settings: one way for the command and the library."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gmc.config.flags import EVAL_SETTING_OF, flag_names, settings_of_flags
from gmc.config.layers import Layers
from gmc.config.settings import RunSettings
from gmc.errors import UsageError
from gmc.evaluation.request import Request
from gmc.resolving.earlier import earlier_settings
from gmc.resolving.resolve import resolve_settings
from gmc.store.generation import GENERATION_FILE, trained_length
from gmc.store.policies import INFO_FILE


def resolve_request(
    request: Request,
    run: Path | None,
    *,
    flags: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
) -> tuple[Request, RunSettings]:
    """The request, and the settings in force.

    run: whose settings are the start, None for a model alone; flags: by the names of `EVAL_SETTING_OF`, None where not given;
    settings: any other by dotted key; assignments: the texts of `--set`. A problem file is the only benchmark unless others
    are named. Raises `UsageError` for a run with a model, for what only a run has, and for bad flags and settings.
    """
    by_model = flags.get("model") is not None
    if by_model and run is not None:
        raise UsageError("--model and --run exclude each other: a run's policies are chosen with --policy")
    if by_model and (request.base or request.policy != "latest"):
        raise UsageError("--base and --policy belong to a run, not to --model")
    if request.problems is not None and flags.get("bench") is None:
        flags = {**flags, "bench": []}
    earlier = _exported(str(flags["model"])) if by_model else None
    earlier = earlier if run is None else earlier_settings(run, resume=False, overwrite=False)
    resolved = resolve_settings(
        earlier=earlier,
        flags=settings_of_flags(flags, EVAL_SETTING_OF) | dict(settings or {}),
        flag_names=flag_names(EVAL_SETTING_OF),
        assignments=assignments,
    )
    return replace(request, trained=run is not None and earlier is not None and bool(earlier.values)), resolved


def _exported(model: str) -> Layers:
    """What an exported policy says of itself: how long the responses of its training were."""
    layers, length = Layers(), trained_length(Path(model))
    if length is not None and (Path(model) / INFO_FILE).is_file():
        layers.set("eval.max_tokens", length, GENERATION_FILE)
    return layers
