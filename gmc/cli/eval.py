"""`gmc eval`: score policies on benchmarks, with intervals; `gmc eval compare`: two results, paired."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gmc.cli import options
from gmc.cli.eval_arms import arms
from gmc.config.flags import EVAL_SETTING_OF, flag_names, settings_of_flags

eval_app = typer.Typer(
    help="Score policies on benchmarks: the newest policy of the run on the built-in arithmetic, unless told otherwise.",
    pretty_exceptions_show_locals=False,
)

ASKED, SAMPLED, WHERE = "What is asked", "How answers are sampled", "Run"
DEFAULT_RUN = Path("runs/default")


@eval_app.callback(invoke_without_command=True)
@options.settings_options(
    EVAL_SETTING_OF,
    tuple(EVAL_SETTING_OF),
    **dict.fromkeys(("bench", "limit"), ASKED),
    **dict.fromkeys(("n", "greedy", "pass_k", "temperature", "top_p", "max_tokens", "seed"), SAMPLED),
    model=WHERE,
)
def evaluate(
    context: typer.Context,
    problems: Annotated[
        str | None,
        typer.Option("--problems", help="A problem file or hub id as a benchmark.", show_default=False, rich_help_panel=ASKED),
    ] = None,
    question_field: Annotated[
        str | None, typer.Option("--question-field", help="Question field of --problems.", rich_help_panel=ASKED)
    ] = None,
    answer_field: Annotated[
        str | None, typer.Option("--answer-field", help="Answer field of --problems.", rich_help_panel=ASKED)
    ] = None,
    bench_data: Annotated[
        Path | None,
        typer.Option(
            "--bench-data",
            envvar="GMC_BENCH_DATA",
            help="Folder with benchmark files (math500.jsonl, …) in place of the hub.",
            rich_help_panel=ASKED,
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            help="Prompt template id. (default: the run's own, else the benchmark's)",
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="Run directory. (default: runs/default)", show_default=False, rich_help_panel=WHERE),
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", help="latest, a version, or all (a curve).", rich_help_panel=WHERE)
    ] = "latest",
    base: Annotated[
        bool, typer.Option("--base", help="Also evaluate the model the run started from, and compare.", rich_help_panel=WHERE)
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for results. (default: RUN/evals, or evals for --model)",
            show_default=False,
            rich_help_panel=WHERE,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a killed evaluation stopped.", rich_help_panel=WHERE)
    ] = False,
    last_number: Annotated[
        bool,
        typer.Option(
            "--last-number",
            help="Take a number that merely stands last for an answer (never done in training).",
            rich_help_panel=SAMPLED,
        ),
    ] = False,
    batch_sequences: Annotated[
        int, typer.Option("--batch-sequences", help="Responses generated at once.", min=1, rich_help_panel=SAMPLED)
    ] = 256,
    set_: options.SetOption = None,
    dry_run: options.DryRunOption = False,
    json: options.JsonOption = False,
    **said: Any,
) -> None:
    """Score policies on benchmarks: avg@n, greedy, maj@n and pass@k with 95 % intervals over problems.

    Samples go to a Parquet file and scores with every setting to a JSON file in RUN/evals.
    """
    if context.invoked_subcommand is not None:
        return
    from gmc.cli.output import print_settings
    from gmc.errors import UsageError
    from gmc.resolving.resolve import resolve_settings
    from gmc.resolving.settled import settled_settings

    model, bench, pass_k = said["model"], said["bench"], said["pass_k"]
    if model is not None and run is not None:
        raise UsageError("--model and --run exclude each other: a run's policies are chosen with --policy")
    if model is not None and (base or policy != "latest"):
        raise UsageError("--base and --policy belong to a run, not to --model")
    run = run or DEFAULT_RUN
    settled = None if model is not None else settled_settings(run, resume=False, overwrite=False)
    settings = resolve_settings(
        settled=settled,
        flags=settings_of_flags(
            {
                **said,
                "bench": _benchmark_names(bench) if bench else [] if problems else None,
                "pass_k": _numbers(pass_k) if pass_k else None,
            },
            EVAL_SETTING_OF,
        ),
        flag_names=flag_names(EVAL_SETTING_OF),
        assignments=set_ or (),
    )
    if dry_run:
        print_settings(settings, as_json=json)
        return

    from gmc.evaluation.run import Request
    from gmc.store.run_directory import RunDirectory

    opened = RunDirectory.open(run) if model is None else None
    request = Request(
        run=opened,
        policy=policy,
        base=base,
        problems=problems,
        question_field=question_field,
        answer_field=answer_field,
        data_directory=bench_data,
        template=template,
        last_number=last_number,
        batch_sequences=batch_sequences,
        trained=settled is not None and bool(settled.values),
        out=out,
        resume=resume,
    )
    if opened is not None:
        opened.save_settings("eval", settings)
    from gmc.cli.eval_view import run_evaluation  # last: it imports torch

    run_evaluation(request, settings, as_json=json)


eval_app.command("arms")(arms)


@eval_app.command("compare")
def compare(
    first: Annotated[Path, typer.Argument(help="A result of gmc eval (its .json, .parquet, or their common name).")],
    second: Annotated[Path, typer.Argument(help="Another result on the same problems.")],
    seed: Annotated[int, typer.Option("--seed", help="Seed of the bootstrap.", min=0)] = 0,
    json: options.JsonOption = False,
) -> None:
    """Compare two results problem by problem: paired bootstrap of the difference, and McNemar's test."""
    from gmc.cli.eval_view import show_comparison
    from gmc.cli.output import print_json
    from gmc.evaluation.compare import compare as compare_results
    from gmc.evaluation.compare import comparison_record
    from gmc.evaluation.results import read_result

    comparison = compare_results(read_result(first), read_result(second), seed=seed)
    show_comparison(comparison)
    if json:
        print_json(comparison_record(comparison))


def _benchmark_names(texts: list[str]) -> list[str]:
    from gmc.errors import UsageError

    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--bench is empty; give a benchmark or a suite, or leave it out for the arithmetic")
    return names


def _numbers(text: str) -> list[int]:
    from gmc.errors import UsageError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"--pass-k {text}: write whole numbers separated by commas, such as 1,4")
    return [int(part) for part in parts]
