"""`gmc train`: reinforcement learning on rollouts as stale as the delay says."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gmc.cli import options

if TYPE_CHECKING:
    from gmc.config import Settings


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
    from gmc.cli.output import print_settings, settings_tree
    from gmc.config import resolve_settings
    from gmc.config.settings import LIVE
    from gmc.errors import UsageError
    from gmc.estimators.registry import build_estimator
    from gmc.resolving.settled import settled_settings

    if live and delay is not None:
        raise UsageError(f"--live and --delay {delay}: followers decide how stale rollouts are. Give one of them.")
    settings = resolve_settings(
        settled=settled_settings(run, resume=resume, overwrite=overwrite),
        recipe=recipe,
        flags=options.flags(context) | ({"delay": LIVE} if live else {}),
        assignments=set_ or (),
    )
    build_estimator(settings.estimator["name"], {key: value for key, value in settings.estimator.items() if key != "name"})
    settings.rollout.sampling(())
    _check_delay(settings)
    if dry_run:
        print_settings(settings, as_json=json)
        return

    from gmc.cli.output import print_json
    from gmc.cli.training_view import run_training
    from gmc.ranks import joined_ranks
    from gmc.store.run_directory import RunDirectory

    def claim() -> RunDirectory:
        directory = RunDirectory.for_training(
            run, model=settings.model.source, seed=settings.seed, resume=resume, overwrite=overwrite
        )
        resources.enter_context(directory.lock())
        directory.save_settings("train", settings_tree(settings))
        return directory

    with joined_ranks() as ranks, ExitStack() as resources:
        summary = run_training(ranks.from_lead(claim), settings, rollouts_from=rollouts, ranks=ranks)
    if json and ranks.leads:
        print_json(summary)
    if not summary["finished"]:
        raise typer.Exit(1)


def _check_delay(settings: "Settings") -> None:
    """Refuse a bad delay before anything is created; what depends on shards or on a file is checked when the run is open."""
    from gmc.delays.spec import delay_spec_kind, parse_delay
    from gmc.errors import UsageError

    kind, _, name = settings.delay.partition(":")
    if kind == "schedule" and not Path(name).is_file():
        raise UsageError(f"--delay {settings.delay}: no such file; gmc simulate-delay writes one")
    if not settings.is_live and delay_spec_kind(settings.delay) not in ("shards", "schedule"):
        rollout = settings.rollout
        updates = settings.train.updates
        parse_delay(settings.delay, prompts=rollout.prompts, group_size=rollout.group_size, seed=settings.seed, updates=updates)
