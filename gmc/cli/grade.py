"""`gmc grade`: explain how one response is graded."""

from typing import Annotated

import typer


def grade(
    gold: Annotated[str, typer.Option(help="The gold answer, as it stands in the data.")],
    response: Annotated[str, typer.Option(help="The response to grade; '-' reads it from standard input.")],
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Count a number that merely stands last, as evaluation may.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Grade one response and show what was extracted, from where, and which tier decided."""
    import sys

    from gmc.grading.explain import describe, explain, shortened
    from gmc.store.files import strict_json

    text = sys.stdin.read() if response == "-" else response
    result = explain(gold, text, strict=not lenient)
    verdict = result.verdict
    rows = {
        "verdict": verdict.status,
        "correct": verdict.correct,
        "tier": verdict.tier,
        "extracted": verdict.prediction,
        "source": result.source,
        "normalized gold": result.normalized_gold,
        "normalized answer": result.normalized_answer,
        "gold reads as": describe(result.gold_shape),
        "answer reads as": None if result.answer_shape is None else describe(result.answer_shape),
        "gold problem": result.gold_problem,
    }
    if as_json:
        typer.echo(strict_json({name.replace(" ", "_"): value for name, value in rows.items()}))
        return
    for name, value in rows.items():
        if value is not None:
            typer.echo(f"{name:<18} {shortened(str(value))}")
