"""`gmc rollout`: sample, grade and store batches of rollouts with the initial policy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gmc.cli import options
from gmc.config.flags import SETTING_OF, flag_names, settings_of_flags

if TYPE_CHECKING:
    from gmc.config.settings import RunSettings
    from gmc.generation.filling import RolloutSummary


@options.settings_options(
    SETTING_OF,
    (
        "model",
        "problems",
        "question_field",
        "answer_field",
        "reward",
        "environment",
        "batches",
        "prompts",
        "group_size",
        "engine",
        "temperature",
        "max_tokens",
        "logprobs",
        "seed",
    ),
)
def rollout(
    run: options.RunOption = Path("runs/default"),
    resume: options.ResumeOption = False,
    auto_resume: options.AutoResumeOption = False,
    overwrite: options.OverwriteOption = False,
    recipe: options.RecipeOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Make rollouts with the newest policy of gmc train --live until that run ends.")
    ] = False,
    set_: options.SetOption = None,
    dry_run: options.DryRunOption = False,
    json: options.JsonOption = False,
    **said: Any,
) -> None:
    """Sample rollouts with the initial policy: P prompts × G responses a batch, rewarded, one Parquet file a batch."""
    from gmc.resolving.earlier import earlier_settings, goes_on
    from gmc.resolving.early import resolve_asked

    if follow:
        engine = said.pop("engine")
        refused = {**said, "resume": resume, "auto_resume": auto_resume, "overwrite": overwrite, "recipe": recipe}
        _follow(run, engine, set_ or (), refused, dry_run=dry_run, json=json)
        return
    resume = options.resuming(resume, auto_resume, lambda: not overwrite and goes_on(run, "rollout"))
    settings = resolve_asked(
        earlier=earlier_settings(run, resume=resume, overwrite=overwrite, command="rollout"),
        recipe=recipe,
        flags=settings_of_flags(said),
        flag_names=flag_names(),
        assignments=set_ or (),
        only_settings=dry_run,
    )
    if dry_run:
        _only_print(settings, as_json=json)
        return

    from gmc.cli.output import print_json, write_line
    from gmc.cli.progress import progress_bar
    from gmc.cli.streams import keep_messages
    from gmc.generation.filling import fill_run

    keep_messages(run / "logs" / "messages.log")
    total = settings.rollout.batches * settings.rollout.prompts * settings.rollout.group_size
    try:
        with progress_bar("rollout", total, "responses") as bar:
            summary = fill_run(run, settings, resume=resume, overwrite=overwrite, advance=bar.advance)
    except KeyboardInterrupt:
        write_line(_interrupted(run, settings.rollout.batches))
        raise
    write_line(_told(summary))
    if json:
        print_json(summary.record())


def _only_print(settings: "RunSettings", *, as_json: bool) -> None:
    from gmc.cli.output import print_settings
    from gmc.resolving.checks import check_sampling

    check_sampling(settings)
    print_settings(settings, as_json=as_json)


def _interrupted(run: Path, batches: int) -> str:
    """What a stopped command left, and how it goes on."""
    kept = len([*(run / "rollouts").glob("*.parquet")])
    return f"stopped by Ctrl-C; kept {kept} of {batches} batches. Go on with: gmc rollout --run {run} --resume"


def _told(summary: "RolloutSummary") -> str:
    new = f"{summary.made} new" if summary.made else "all of them there before, nothing was sampled"
    return (
        f"rollout batches in {summary.run}/rollouts: {summary.batches} ({new}); {summary.responses} responses, "
        f"{_worth(summary)}, {100 * summary.cut_off:.1f} % cut off at the length limit, "
        f"mean length {summary.mean_length:.1f} tokens" + _set_aside(summary)
    )


def _worth(summary: "RolloutSummary") -> str:
    return f"mean reward {summary.mean_reward:.3f}" if summary.accuracy is None else f"{100 * summary.accuracy:.1f} % correct"


def _set_aside(summary: "RolloutSummary") -> str:
    return f"; {summary.set_aside} groups with equal rewards were set aside" if summary.set_aside else ""


def _follow(
    run: Path, engine: str | None, assignments: Sequence[str], refused: Mapping[str, object], *, dry_run: bool, json: bool
) -> None:
    from gmc.cli.following import follow, follower_settings
    from gmc.cli.output import INTERRUPTED, print_json, print_settings

    settings = follower_settings(run, engine, assignments, refused)
    if dry_run:
        print_settings(settings, as_json=json)
        return
    summary, interrupted = follow(run, settings)
    if json:
        print_json(summary)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
