"""`gmc grade`: explain how one response is graded, and what exactly a model is asked."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

THINKING = "opens thinking"
SAID = {"tier": "compared as", THINKING: "thinking is open", "symbolic": "by computer algebra", "none": "no answer found"}
"""Names and values that `--json` and code have, for a person."""


def grade(
    gold: Annotated[str | None, typer.Option(help="The gold answer, as it stands in the data.", show_default=False)] = None,
    response: Annotated[
        str | None, typer.Option(help="The response to grade; '-' reads it from standard input.", show_default=False)
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Count a number that merely stands last, as evaluation may.")
    ] = False,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="A question: show the prompt and its token ids, and grade the response as one to it.", show_default=False
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Model whose tokenizer makes the prompt.")] = "embedded",
    template: Annotated[
        str | None, typer.Option(help="Prompt template id. (default: arithmetic-v1 for embedded, else math-two-shot-v1)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Grade one response and show what was extracted, from where, and how it was compared."""
    import sys

    from gmc.cli.output import PlainConsole
    from gmc.errors import UsageError
    from gmc.store.files import strict_json

    if (gold is None) != (response is None) or (gold is None and prompt is None):
        raise UsageError("give --gold and --response to grade a response, --prompt to see what a model is asked, or all three")
    rows: dict[str, Any] = {}
    if prompt is not None:
        rows |= _prompt_rows(prompt, model, template)
    if gold is not None and response is not None:
        text = sys.stdin.read() if response == "-" else response
        rows |= _verdict_rows(gold, text, strict=not lenient, thinking=bool(rows.get(THINKING)))
    if as_json:
        typer.echo(strict_json({name.replace(" ", "_"): value for name, value in rows.items()}))
        return
    PlainConsole(highlight=False).say_rows(dict(_said(rows)))


def _said(rows: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is known, in words; the prompt whole, of anything else long only the beginning."""
    from gmc.grading.explain import shortened

    for name, value in rows.items():
        if value is not None and value != [] and not (name == THINKING and not value):
            words = "; ".join(value) if name == "notes" else str(value)
            text = words if name.startswith("prompt") else shortened(words)
            yield SAID.get(name, name), SAID.get(text, text)


def _prompt_rows(question: str, model: str, template_id: str | None) -> dict[str, Any]:
    from gmc.grading.thinking import opens_thinking
    from gmc.models import load_tokenizer
    from gmc.problems.prompt_notes import prompt_notes
    from gmc.problems.templates import default_template, get_template

    tokenizer = load_tokenizer(model)
    template = get_template(template_id or default_template("", model))
    text = template.render(question, tokenizer)
    token_ids = template.encode(text, tokenizer, question)
    ends = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return {
        "template": template.template_id,
        "prompt": text,
        "prompt token ids": token_ids,
        "prompt tokens": tokenizer.convert_ids_to_tokens(token_ids),
        THINKING: opens_thinking(text, question),
        "notes": prompt_notes(template, tokenizer, ends),
    }


def _verdict_rows(gold: str, response: str, *, strict: bool, thinking: bool) -> dict[str, Any]:
    from gmc.grading.explain import describe, explain

    result = explain(gold, response, strict=strict, thinking=thinking)
    verdict = result.verdict
    return {
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
