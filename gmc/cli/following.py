"""`gmc rollout --follow`: what a person sees of a follower, and which settings it takes from the run's trainer."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gmc.cli.output import write_line
from gmc.cli.progress import format_rate, status_line
from gmc.cli.streams import keep_messages
from gmc.config.flags import flag_names, flag_of
from gmc.config.layers import Layers
from gmc.config.settings import RunSettings, settings_tree
from gmc.delays.registry import delay_class
from gmc.errors import GmcError, UsageError
from gmc.live.heartbeats import Heartbeat
from gmc.resolving.earlier import trainers_settings
from gmc.resolving.resolve import resolve_settings

FIRST_POLL_SECONDS = 0.5
WORD_SECONDS = 60.0
OWN_SECTIONS = ("live",)
OWN_KEYS = {
    "model": ("device", "compute_dtype", "trust_remote_code"),
    "rollout": ("engine", "servers", "tensor_parallel", "gpu_memory_share", "batches", "weight_transfer"),
}


def follower_settings(run: Path, engine: str | None, assignments: Sequence[str], refused: Mapping[str, Any]) -> RunSettings:
    """The settings of the run's trainer with this follower's engine and machine; waits until there are some.

    refused: flags by parameter name that a follower cannot have. Raises `UsageError` when one is given, when `--set` changes
    what the trainer decides, and when the run is not live; `GmcError` when no trainer comes within live.patience_seconds.
    """
    for name, value in refused.items():
        if value not in (None, False):
            raise UsageError(f"--follow with {flag_of(name)}: a follower takes that from the run's trainer. Leave it out.")
    patience = resolve_settings(assignments=assignments).live.patience_seconds
    earlier = _wait_for_trainer(run, patience)
    settings = resolve_settings(
        earlier=earlier, flags={"rollout.engine": engine}, flag_names=flag_names(), assignments=assignments
    )
    if not delay_class(settings.delay).live:
        raise UsageError(f"{run}: its trainer runs with --delay {settings.delay}, not --live, and makes its own rollouts.")
    theirs, ours = _shared(settings_tree(resolve_settings(earlier=earlier))), _shared(settings_tree(settings))
    for section in sorted(theirs.keys() | ours.keys()):
        if theirs.get(section) != ours.get(section):
            raise UsageError(f"--follow changes [{section}], which the run's trainer decides. Leave it out.")
    return settings


def _wait_for_trainer(run: Path, patience_seconds: float) -> Layers:
    path = run / "settings" / "train.toml"
    started = time.monotonic()
    last_word = -math.inf
    while not path.is_file():
        now = time.monotonic()
        if now - started > patience_seconds:
            raise GmcError(f"{run}: no trainer came for {now - started:.0f} s; start it with gmc train --live --run {run}")
        if now - last_word > WORD_SECONDS:
            write_line(f"waiting for a trainer: gmc train --live --run {run}")
            last_word = now
        time.sleep(FIRST_POLL_SECONDS)
    return trainers_settings(path)


def _shared(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {
        section: {key: value for key, value in values.items() if key not in OWN_KEYS.get(section, ())}
        if isinstance(values, Mapping)
        else values
        for section, values in tree.items()
        if section not in OWN_SECTIONS
    }


def _made(heartbeat: Heartbeat) -> str:
    busy = heartbeat.busy_seconds
    rate = f"{format_rate(heartbeat.responses / busy)} responses/s" if busy else ""
    held = "" if heartbeat.version is None else f"version {heartbeat.version}"
    made = f"{heartbeat.batches} batch{'' if heartbeat.batches == 1 else 'es'}"
    return "  ".join(part for part in (made, f"{heartbeat.responses} responses", rate, held) if part)


def follow(run: Path, settings: RunSettings) -> tuple[dict[str, Any], bool]:
    """Follow the run; returns the summary of `--json`, and whether Ctrl-C ended it."""
    from gmc.generation.following import follow_run
    from gmc.store.run_directory import RunDirectory
    from gmc.training.signals import stop_on_signals

    directory = RunDirectory.open(run)
    keep_messages(run / "logs" / "messages.log")
    with stop_on_signals() as stop, status_line("follow") as show:

        def progress(said: Heartbeat) -> None:
            show(_made(said), said.state)

        show("", "loading the model")
        summary = follow_run(directory, settings, progress=progress, stopping=lambda: bool(stop))
    ended = f"stopped by {stop.by}" if stop else "the run has ended"
    write_line(f"{ended}: made {summary['batches']} batches, {summary['responses']} responses, {summary['tokens']} tokens")
    return {"run": str(run), **summary}, stop.signal_name == "SIGINT"
