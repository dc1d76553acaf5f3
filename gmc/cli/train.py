"""`gmc train`: reinforcement learning on rollouts as stale as the delay says."""

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gmc.cli import options
from gmc.cli.logs import show_logs

if TYPE_CHECKING:
    from gmc.training.run import TrainingResult


def train(
    context: typer.Context,
    run: options.RunOption = Path("runs/default"),
    estimator: Annotated[
        str | None, typer.Option("--estimator", help="Correction rule; see gmc estimators. (default: gmc)", show_default=False)
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay",
            help="Updates between generation and use: D, length:C, length:mean=M, uniform:LOW:HIGH, geometric:MEAN, "
            "schedule:FILE or shards. (default: 64)",
            show_default=False,
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Publish policies to any number of gmc rollout --follow, and train on what they make."),
    ] = False,
    updates: Annotated[
        int | None, typer.Option("--updates", help="N, planned optimizer updates. (default: 400)", show_default=False)
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option("--learning-rate", help="Peak rate. (default: 4e-4 embedded, else 1e-6)", show_default=False),
    ] = None,
    model: options.ModelOption = None,
    problems: options.ProblemsOption = None,
    question_field: options.QuestionFieldOption = None,
    answer_field: options.AnswerFieldOption = None,
    prompts: options.PromptsOption = None,
    group_size: options.GroupSizeOption = None,
    engine: options.EngineOption = None,
    temperature: options.TemperatureOption = None,
    max_tokens: options.MaxTokensOption = None,
    logprobs: options.LogprobsOption = None,
    seed: options.SeedOption = None,
    rollouts: Annotated[
        Path | None,
        typer.Option("--rollouts", help="Bring in the version-0 rollouts of another run's folder.", show_default=False),
    ] = None,
    resume: options.ResumeOption = False,
    overwrite: options.OverwriteOption = False,
    recipe: options.RecipeOption = None,
    set_: options.SetOption = None,
    dry_run: options.DryRunOption = False,
    json: options.JsonOption = False,
) -> None:
    """Train on the rollouts of the run and on those its own weights generate, each as stale as --delay says."""
    from gmc.cli.output import print_settings
    from gmc.config import resolve_settings
    from gmc.delays.live import LiveDelay
    from gmc.errors import UsageError
    from gmc.resolving.checks import check_settings
    from gmc.resolving.settled import settled_settings

    if live and delay is not None:
        raise UsageError(f"--live and --delay {delay}: followers decide how stale rollouts are. Give one of them.")
    settings = resolve_settings(
        settled=settled_settings(run, resume=resume, overwrite=overwrite),
        recipe=recipe,
        flags=options.flags(context) | ({"delay": LiveDelay.name} if live else {}),
        assignments=set_ or (),
    )
    check_settings(settings)
    if dry_run:
        print_settings(settings, as_json=json)
        return

    from gmc.cli.output import print_json
    from gmc.cli.training_view import TrainingView
    from gmc.ranks import joined_ranks
    from gmc.training.run import train_run
    from gmc.training.signals import stop_on_signals

    with joined_ranks() as ranks, ExitStack() as resources, stop_on_signals() as stop:
        if not ranks.leads:
            show_logs(logging.ERROR)
        result = train_run(
            run,
            settings,
            resume=resume,
            overwrite=overwrite,
            rollouts_from=rollouts,
            observer=resources.enter_context(TrainingView()) if ranks.leads else None,
            stopping=lambda: bool(stop),
            ranks=ranks,
        )
    if ranks.leads:
        _say_end(result, stop.signal_name)
        if json:
            print_json(result.record())
    if not result.finished:
        raise typer.Exit(1)


def _say_end(result: "TrainingResult", signal_name: str | None) -> None:
    from gmc.cli.output import say
    from gmc.store.run_directory import RunDirectory

    if result.finished:
        run = RunDirectory.open(result.run)
        say(f"policy version {result.updates} is in {run.policies}, metrics in {run.metrics}; next: gmc eval")
    else:
        say(f"stopped by {signal_name or 'another rank'} after update {result.updates}; go on with --resume")
