"""`gmc eval`: score policies on benchmarks, with intervals; `gmc eval compare`: two results, paired."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from gmc.cli import options
from gmc.cli.eval_arms import arms
from gmc.config.flags import EVAL_SETTING_OF
from gmc.evaluation.request import ASKED, SAMPLED, WHERE, Request

eval_app = typer.Typer(
    help="Score policies on benchmarks: the newest policy of the run on the built-in arithmetic, unless told otherwise.",
    pretty_exceptions_show_locals=False,
)

DEFAULT_RUN = Path("runs/default")


@eval_app.callback(invoke_without_command=True)
@options.settings_options(
    EVAL_SETTING_OF,
    tuple(EVAL_SETTING_OF),
    **dict.fromkeys(("bench", "limit"), ASKED),
    **dict.fromkeys(("n", "greedy", "pass_k", "temperature", "top_p", "max_tokens", "seed"), SAMPLED),
    model=WHERE,
)
@options.dataclass_options(Request)
def evaluate(
    context: typer.Context,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="Run directory. (default: runs/default)", show_default=False, rich_help_panel=WHERE),
    ] = None,
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
    from gmc.evaluation.early import require_subjects
    from gmc.store.run_directory import RunDirectory

    flags = {name: said.pop(name) for name in EVAL_SETTING_OF}
    request = Request(**{name: value for name, value in said.items() if value is not None})
    path = run if flags["model"] is not None else run or DEFAULT_RUN
    flags |= _lists(flags)
    if not dry_run:
        require_subjects(request, path, flags)
    from gmc.evaluation.asking import resolve_request  # it imports torch

    request, settings = resolve_request(request, path, flags=flags, assignments=set_ or ())
    if dry_run:
        print_settings(settings, as_json=json)
        return
    if path is not None:
        request = replace(request, run=RunDirectory.open(path))
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
    from gmc.evaluation.results import read_result

    results = read_result(first), read_result(second)

    from gmc.cli.eval_view import show_comparison  # it imports torch
    from gmc.cli.output import print_json
    from gmc.evaluation.compare import compare as compare_results
    from gmc.evaluation.compare import comparison_record

    comparison = compare_results(*results, seed=seed)
    show_comparison(comparison)
    if json:
        print_json(comparison_record(comparison))


def _lists(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are lists, which are typed as text."""
    from gmc.errors import UsageError

    bench, pass_k = flags["bench"], flags["pass_k"]
    names = [name.strip() for text in bench or () for name in text.split(",") if name.strip()]
    if bench and not names:
        raise UsageError("--bench is empty; give a benchmark or a suite, or leave it out for the arithmetic")
    return {"bench": names or None, "pass_k": options.whole_numbers("--pass-k", pass_k) if pass_k else None}
