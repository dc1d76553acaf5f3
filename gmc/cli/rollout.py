"""`gmc rollout`: sample, grade and store batches of rollouts with the initial policy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from gmc.cli import options

FOLLOWER_PARAMETERS = ("run", "follow", "engine", "set_", "dry_run", "json")
"""What `--follow` leaves to the follower; the run's trainer decides the rest."""


def rollout(
    context: typer.Context,
    run: options.RunOption = Path("runs/default"),
    model: options.ModelOption = None,
    problems: options.ProblemsOption = None,
    question_field: options.QuestionFieldOption = None,
    answer_field: options.AnswerFieldOption = None,
    batches: Annotated[
        int | None, typer.Option("--batches", help="Launch batches to write. (default: 16)", show_default=False)
    ] = None,
    prompts: options.PromptsOption = None,
    group_size: options.GroupSizeOption = None,
    engine: options.EngineOption = None,
    temperature: options.TemperatureOption = None,
    max_tokens: options.MaxTokensOption = None,
    logprobs: options.LogprobsOption = None,
    seed: options.SeedOption = None,
    resume: options.ResumeOption = False,
    overwrite: options.OverwriteOption = False,
    recipe: options.RecipeOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Make rollouts with the newest policy of gmc train --live until that run ends.")
    ] = False,
    set_: options.SetOption = None,
    dry_run: options.DryRunOption = False,
    json: options.JsonOption = False,
) -> None:
    """Sample rollouts with the initial policy: P prompts × G responses a batch, graded, one Parquet file a batch."""
    from gmc.cli.output import print_settings
    from gmc.config import resolve_settings
    from gmc.resolving.settled import settled_settings

    if follow:
        refused = {name: value for name, value in context.params.items() if name not in FOLLOWER_PARAMETERS}
        _follow(run, engine, set_ or (), refused, dry_run=dry_run, json=json)
        return
    settings = resolve_settings(
        settled=settled_settings(run, resume=resume, overwrite=overwrite),
        recipe=recipe,
        flags=options.flags(context),
        assignments=set_ or (),
    )
    if dry_run:
        print_settings(settings, as_json=json)
        return

    from gmc.cli.output import print_json, say
    from gmc.cli.progress import progress_bar
    from gmc.generation.filling import fill_run

    total = settings.rollout.batches * settings.rollout.prompts * settings.rollout.group_size
    with progress_bar("rollout", total, "responses") as bar:
        summary = fill_run(run, settings, resume=resume, overwrite=overwrite, advance=bar.advance)
    say(
        f"rollout batches in {summary.run}/rollouts: {summary.batches} ({summary.made} new); {summary.responses} responses, "
        f"{100 * summary.accuracy:.1f} % correct, {100 * summary.cut_off:.1f} % cut off at the length limit, "
        f"mean length {summary.mean_length:.1f} tokens"
    )
    if json:
        print_json(summary.record())


def _follow(
    run: Path, engine: str | None, assignments: Sequence[str], refused: Mapping[str, object], *, dry_run: bool, json: bool
) -> None:
    from gmc.cli.following import follow, follower_settings
    from gmc.cli.output import print_json, print_settings

    settings = follower_settings(run, engine, assignments, refused)
    if dry_run:
        print_settings(settings, as_json=json)
        return
    summary = follow(run, settings)
    if json:
        print_json(summary)
