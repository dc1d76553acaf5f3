"""`gmc train`: reinforcement learning on rollouts as stale as the delay says."""

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gmc.cli import options
from gmc.cli.logs import show_logs
from gmc.config.flags import SETTING_OF, flag_names, settings_of_flags
from gmc.errors import UsageError

if TYPE_CHECKING:
    from gmc.config.settings import RunSettings
    from gmc.training.run import TrainingResult


@options.settings_options(
    SETTING_OF,
    (
        "estimator",
        "delay",
        "updates",
        "start_version",
        "learning_rate",
        "eval_every",
        "model",
        "problems",
        "question_field",
        "answer_field",
        "reward",
        "environment",
        "prompts",
        "group_size",
        "engine",
        "temperature",
        "max_tokens",
        "logprobs",
        "seed",
    ),
)
def train(
    run: options.RunOption = Path("runs/default"),
    live: Annotated[
        bool,
        typer.Option("--live", help="Publish policies to any number of gmc rollout --follow, and train on what they make."),
    ] = False,
    rollouts: Annotated[
        Path | None,
        typer.Option(
            "--rollouts",
            help="Bring in the version-0 rollouts of another run; with --delay shards, of any version and origin.",
            show_default=False,
        ),
    ] = None,
    resume: options.ResumeOption = False,
    auto_resume: options.AutoResumeOption = False,
    overwrite: options.OverwriteOption = False,
    recipe: options.RecipeOption = None,
    set_: options.SetOption = None,
    dry_run: options.DryRunOption = False,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print what training takes of a GPU's memory, and exit. Needs neither GPU nor weights."),
    ] = False,
    json: options.JsonOption = False,
    **said: Any,
) -> None:
    """Train on the rollouts of the run and on those its own weights generate, each as stale as --delay says."""
    from gmc.resolving.earlier import earlier_settings, goes_on
    from gmc.resolving.early import resolve_asked

    resume = options.resuming(resume, auto_resume, lambda: not overwrite and goes_on(run, "train"))
    settings = resolve_asked(
        earlier=earlier_settings(run, resume=resume, overwrite=overwrite, command="train"),
        recipe=recipe,
        flags=settings_of_flags(_with_live(said) if live else said),
        flag_names=flag_names() | ({"delay": "--live"} if live else {}),
        assignments=[*(["model.device=cuda"] if plan else []), *(set_ or ())],
        only_settings=plan or dry_run,
    )
    if plan or dry_run:
        _only_print(settings, plan=plan, as_json=json)
        return

    from gmc.cli.output import INTERRUPTED
    from gmc.cli.streams import keep_messages
    from gmc.cli.training_view import TrainingView
    from gmc.ranks import joined_ranks
    from gmc.training.run import train_run
    from gmc.training.signals import stop_on_signals

    with joined_ranks() as ranks, ExitStack() as resources, stop_on_signals() as stop:
        keep_messages(run / "logs" / "messages.log")
        show_logs(logging.INFO if ranks.is_rank_0 else logging.ERROR)
        result = train_run(
            run,
            settings,
            resume=resume,
            overwrite=overwrite,
            rollouts_from=rollouts,
            observer=resources.enter_context(TrainingView()) if ranks.is_rank_0 else None,
            stopping=lambda: bool(stop),
            ranks=ranks,
        )
    if ranks.is_rank_0:
        _report(result, stop.by, json=json)
    if not result.finished:
        raise typer.Exit(INTERRUPTED if stop.signal_name == "SIGINT" else 1)


def _only_print(settings: "RunSettings", *, plan: bool, as_json: bool) -> None:
    from gmc.cli.output import print_settings
    from gmc.resolving.checks import check_settings

    if plan:
        from gmc.cli.plan_view import print_plan

        print_plan(settings, as_json=as_json)
    else:
        check_settings(settings)
        print_settings(settings, as_json=as_json)


def _with_live(said: dict[str, Any]) -> dict[str, Any]:
    from gmc.delays.live import LiveDelay

    if said["delay"] is not None:
        raise UsageError(f"--live and --delay {said['delay']}: followers decide how stale rollouts are. Give one of them.")
    return {**said, "delay": LiveDelay.name}


def _report(result: "TrainingResult", stopped_by: str | None, *, json: bool) -> None:
    from gmc.cli.output import level, print_json, stderr, write_line
    from gmc.cli.training_summary import summarize
    from gmc.store.run_directory import RunDirectory

    if not result.finished:
        if result.stopped_on:
            write_line(
                f"ended after {result.updates} updates, as train.stop_on asks ({result.stopped_on}). --resume would go on from "
                "here, with what is wrong; start another --run instead"
            )
        else:
            by = stopped_by or "another rank"
            write_line(f"stopped by {by} after {result.updates} updates; go on with: gmc train --run {result.run} --resume")
    elif not result.metrics:
        write_line(f"{result.run}: finished, all {result.planned_updates} updates are made; --resume --updates N adds more")
    elif level() < logging.WARNING:
        write_line(f"{result.estimator} at --delay {result.delay}: {result.updates} of {result.planned_updates} updates made")
        stderr.print(summarize(RunDirectory.open(result.run)))
    if json:
        print_json(result.record())
