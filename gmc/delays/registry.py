"""`--delay SPEC`: finding a delay model by name among the installed distributions, and building it."""

from collections.abc import Sequence

from gmc.delays.base import Arguments, DelayContext, DelayModel, ShardContents
from gmc.delays.fixed import FixedDelay
from gmc.errors import UsageError
from gmc.registry import Plugin, Registry, UnknownPluginError

GROUP = "gmc.delays"
EXAMPLES = "0, 256, ramp:64, block:16, uniform:0:64, length:28, length:mean=160"

_REGISTRY = Registry(GROUP, DelayModel, "delay")  # type: ignore[type-abstract]


def list_delays() -> list[Plugin[DelayModel]]:
    """Every registered delay by name, each imported on its own. A broken one is listed with its cause."""
    return _REGISTRY.plugins()


def load_delay(name: str) -> type[DelayModel]:
    """The class registered as `name`. Raises `UsageError` for a name that is unknown, registered twice or broken."""
    return _REGISTRY.load(name)


def delay_class(spec: str) -> type[DelayModel]:
    """The class that a spec names; a bare number names the fixed delay. Raises `UsageError` with examples.

    >>> delay_class("256").name, delay_class("length:mean=160").name
    ('fixed', 'length')
    """
    name = spec.partition(":")[0]
    if name.lstrip("+-").replace(".", "", 1).isdigit():
        return FixedDelay
    try:
        return load_delay(name)
    except UnknownPluginError as error:
        raise UsageError(f"--delay {spec}: {error} Examples: {EXAMPLES}") from error


def parse_delay(
    spec: str, *, prompts: int, group_size: int, seed: int, updates: int, shards: Sequence[ShardContents] = ()
) -> DelayModel:
    """The delay model that `spec` describes, for a run as in `DelayContext`.

    Raises `UsageError` naming the spec, with examples, for a bad one.
    """
    context = DelayContext(prompts, group_size, seed, updates, shards)
    return delay_class(spec).parse(arguments_of(spec), context)


def arguments_of(spec: str) -> Arguments:
    """The arguments in a spec. Raises `UsageError` when its name is unknown."""
    delay = delay_class(spec)
    return Arguments.of(spec, delay.name, delay.examples)
