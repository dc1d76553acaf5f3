"""`gmc lab step`: one step of the toy policy on old data."""

from typing import Annotated

import typer

from gmc.cli.options import JsonOption, whole_numbers


def step(
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            "--estimator", help="NAME or NAME:KEY=VALUE. May be repeated. (default: all installed)", show_default=False
        ),
    ] = None,
    age: Annotated[str, typer.Option("--age", metavar="N,N,...", help="Ages of the data, in updates.")] = "10,25,60",
    rate: Annotated[float, typer.Option("--rate", min=0, help="Learning rate of the run that makes the policies.")] = 0.04,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Tasks that are averaged.")] = 3,
    batches: Annotated[int, typer.Option("--batches", min=100, help="Update batches a task.")] = 1200,
    json: JsonOption = False,
) -> None:
    """One step of the toy policy on data of a given age: each rule's direction and variance against the exact gradient.

    The longer companion of `gmc lab exact`: twelve tokens, where ratios spread, and means over sampled batches.
    """
    from dataclasses import asdict

    from gmc.estimators.names import require_estimators

    require_estimators(estimator or ())
    from rich.console import Console

    from gmc.cli.output import print_json, write_line
    from gmc.cli.progress import progress_bar
    from gmc.lab.arms import Arm, installed_arms, require_unique
    from gmc.lab.toy.one_step import measure_steps
    from gmc.lab.toy.report import STEP_MEANING, step_tables

    arms = [Arm.parse(text) for text in estimator or []] or installed_arms()
    require_unique(arms)
    ages = whole_numbers("--age", age)
    with progress_bar("step", seeds * len(ages) * len(arms), "cells") as bar:
        found = measure_steps(arms, ages=ages, rate=rate, seeds=seeds, batches=batches, advance=bar.advance)
    if json:
        print_json({"steps": [asdict(one) for one in found]})
    else:
        Console(highlight=False).print(*step_tables(found), sep="\n")
        write_line(STEP_MEANING)
