"""`gmc status`: one screen on a run, whether it is being trained, followed, both or neither."""

import sys
import time
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gmc.cli import options
from gmc.cli.output import INTERRUPTED, PlainConsole
from gmc.cli.sparkline import can_draw, curve_text
from gmc.cli.training_summary import set_aside_text
from gmc.delays.version_0 import VERSION_0_SHARE

IN_WORDS = {
    "reward/mean": "reward {:.3f}",
    "ratio/ess_share": "effective sample size {:.2f}",
    "ratio/groups_capped_share": "groups capped {:.2f}",
    "optimizer/gradient_norm": "gradient norm {:.2g}",
}
"""What of `gmc.live.overview.SHOWN_METRICS` is of the last update alone, as the screen says it."""

WATCH_SECONDS = 2.0
CURVE = 40


def status(
    run: options.RunArgument = None,
    run_flag: options.RunFlag = None,
    json: options.JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Redraw every two seconds until Ctrl-C.")] = False,
) -> None:
    """Show versions, updates, batches, followers, delays and errors of a run."""
    from gmc.cli.output import print_json
    from gmc.errors import UsageError
    from gmc.live.overview import overview
    from gmc.store.run_directory import RunDirectory

    if json and watch:
        raise UsageError("--json prints one object and --watch redraws a screen: give one of them.")
    directory = RunDirectory.open(options.looked_at(run, run_flag))
    if json:
        print_json(overview(directory))
    elif watch:
        _watch(directory)
    else:
        PlainConsole(highlight=False).print(screen(overview(directory), can_draw(sys.stdout.encoding)))


def _watch(directory: Any) -> None:
    from gmc.live.overview import overview

    unicode = can_draw(sys.stdout.encoding)  # a live screen puts another stream in its place
    with Live(screen(overview(directory), unicode), console=PlainConsole(highlight=False), auto_refresh=False) as live:
        try:
            while True:
                time.sleep(WATCH_SECONDS)
                live.update(screen(overview(directory), unicode), refresh=True)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def screen(found: dict[str, Any], unicode: bool = True) -> Group:
    """The overview for a person. unicode: whether the terminal can draw a curve in blocks."""
    head = Table.grid(padding=(0, 2))
    for name, value in (
        ("run", f"{found['run']}  ({found['model']}, seed {found['seed']}, id {found['run_id']})"),
        ("rule", _rule(found)),
        ("updates", _updates(found)),
        ("reward", curve_text(found["rewards"], CURVE, unicode=unicode)),
        *_heldout(found["heldout"]),
        ("policy", _policy(found)),
        _made(found),
        *_reuse(found),
        *_set_aside(found),
        ("delays", _delays(found["delays"], found["updates"])),
        *_last_update(found["metrics"], warned=bool(found["warnings"])),
        ("trainer", _trainer(found)),
    ):
        head.add_row(Text(name, style="bold"), Text(str(value)))
    parts: list[Any] = [head]
    if found["followers"]:
        parts.append(_followers(found["followers"]))
    parts += [Text(warning, style="yellow") for warning in found["warnings"]]
    parts += [
        Text(f"{error['who']}, {error['age_seconds']:.0f} s ago: {error['error']}", style="red") for error in found["errors"]
    ]
    return Group(*parts)


def _last_update(metrics: dict[str, float | None], *, warned: bool) -> list[tuple[str, str]]:
    """The numbers of the last update, and how much of training fell on the untrained policy's rollouts.

    warned: whether a warning says the latter.
    """
    said = [words.format(value) for name, words in IN_WORDS.items() if (value := metrics.get(name)) is not None]
    rows = [("last update", ", ".join(said))] if said else []
    share = metrics.get(VERSION_0_SHARE)
    if share is not None and not warned:
        rows.append(("offline", f"{100 * share:.0f} % of the learning rate so far fell on rollouts of version 0"))
    return rows


def _policy(found: dict[str, Any]) -> str:
    version, checkpoint = found["policy_version"], found["checkpoint"]
    published = "none published yet" if version is None else f"version {version} published"
    return f"{published}, {'no checkpoint' if checkpoint is None else f'checkpoint after {checkpoint} updates'}"


def _rule(found: dict[str, Any]) -> str:
    if found["estimator"]:
        return f"{found['estimator']} at --delay {found['delay']}"
    return "none yet: not trained" if found["worker"] is None else "none yet: the run is being started"


def _made(found: dict[str, Any]) -> tuple[str, str]:
    """Launched = trained + waiting + in work; the last where somebody works. In groups where updates take parts of batches."""
    flying, waiting = found["groups_in_flight"], found["uses_to_come"]
    once, whole = found["group_uses"] == found["groups_trained"], flying is None and found["whole_batches"]
    if waiting is not None and once and not whole:
        unfinished = f", {flying:.0f} of them unfinished" if flying else ""
        launched = found["groups_trained"] + waiting
        return "groups", f"{launched:.0f}: {found['groups_trained']} trained, {waiting:.0f} waiting{unfinished}"
    work = f", {found['batches_in_work']} in work" if found["batches_in_work"] else ""
    return (
        "batches",
        f"{found['batches_launched']}: {found['batches_trained']} trained, {found['batches_waiting']} waiting{work}",
    )


def _set_aside(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Groups that `rollout.resample_equal` replaced, where there are any."""
    if not found["groups_set_aside"]:
        return []
    return [("set aside", set_aside_text(found["groups_set_aside"], found["set_aside_reward"]))]


def _updates(found: dict[str, Any]) -> str:
    planned = f" of {found['planned_updates']}" if found["planned_updates"] is not None else ""
    return f"{found['updates']}{planned}{', ended' if found['ended'] else ''}"


def _heldout(scores: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What the policy scored on held-out problems, where it was asked."""
    if scores is None:
        return []
    best, last = scores["best"], scores["last"]
    return [
        ("held out", f"{last['score']:.3f} at version {last['version']}, best {best['score']:.3f} at {best['version']}"),
    ]


def _reuse(found: dict[str, Any]) -> list[tuple[str, str]]:
    """How often groups are used, when any was used more than once."""
    uses, groups, to_come = found["group_uses"], found["groups_trained"], found["uses_to_come"]
    return [("reuse", f"{uses} uses of {groups} groups, {to_come:.0f} to come")] if uses > groups else []


def _delays(delays: dict[str, float] | None, updates: int) -> str:
    if delays is None:
        return "not known" if updates else "none yet"
    return (
        f"mean {delays['mean']:.1f}, median {delays['p50']}, 90 % {delays['p90']}, max {delays['max']}, last {delays['last']}"
    )


def _trainer(found: dict[str, Any]) -> str:
    if found["trainer"] is not None:
        return _state(found["trainer"])
    if found["worker"] is not None:
        return f"{found['worker']} works on this run"
    return "nobody works on this run" + ("" if found["updates"] else "; a command appears here once its libraries are loaded")


def _state(process: dict[str, Any]) -> str:
    if process["alive"]:
        return str(process["state"])
    ago = f"{process['age_seconds']:.0f} s ago"
    return f"{process['state']} {ago}" if process["ended"] else f"gone: silent for {ago[:-4]} while {process['state']}"


def _followers(followers: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("follower", "version", "batches", "responses/s", "tokens/s", "state"):
        table.add_column(column, no_wrap=column != "state")
    for follower in sorted(followers, key=lambda follower: (not follower["alive"], follower["name"])):
        table.add_row(
            follower["name"],
            str(_or_none(follower["version"])),
            str(follower["batches"]),
            _rate(follower["responses_per_second"]),
            _rate(follower["tokens_per_second"]),
            Text(_state(follower), style="green" if follower["alive"] else "dim"),
        )
    return table


def _rate(value: float | None) -> str:
    from gmc.cli.progress import format_rate

    return "-" if value is None else format_rate(value)


def _or_none(value: Any) -> Any:
    return "none" if value is None else value
