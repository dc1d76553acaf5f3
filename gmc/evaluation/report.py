"""Results as tables for a terminal. A score never stands without its n, its number of problems and its interval."""

from collections.abc import Sequence

from rich.table import Table

from gmc.evaluation.compare import Comparison
from gmc.evaluation.results import Result
from gmc.evaluation.statistics import Estimate


def format_estimate(value: Estimate) -> str:
    """A score in percent with its 95 % interval: "61.3 [57.0, 65.5]"."""
    return f"{100 * value.value:.1f} [{100 * value.low:.1f}, {100 * value.high:.1f}]"


def result_table(results: Sequence[Result]) -> Table:
    """One row a score: benchmark, model, score, % correct with interval, n and problems, and how responses ended."""
    table = Table(title="% correct [95 % interval over problems]", title_justify="left")
    for name in ("benchmark", "model", "score"):
        table.add_column(name)
    for name in ("correct", "n", "problems", "tokens", "cut off", "no answer"):
        table.add_column(name, justify="right")
    for result in results:
        outcomes = result.record["outcomes"]
        for index, (name, value) in enumerate(result.estimates().items()):
            counts = outcomes["greedy" if name == "greedy" else "sampled"]
            table.add_row(
                result.record["benchmark"] if index == 0 else "",
                result.record["model"]["label"] if index == 0 else "",
                name,
                format_estimate(value),
                str(value.samples),
                str(value.problems),
                f"{counts['mean_response_tokens']:.0f}",
                f"{100 * counts['truncated_share']:.1f} %",
                f"{100 * counts['unparseable_share']:.1f} %",
                end_section=index == len(result.record["scores"]) - 1,
            )
    return table


def mean_table(name: str, value: Estimate, members: Sequence[str]) -> Table:
    """The mean over the benchmarks of a suite or selection."""
    table = Table(title=f"mean over {', '.join(members)}", title_justify="left")
    for column in ("score", "correct", "problems"):
        table.add_column(column)
    table.add_row(name, format_estimate(value), str(value.problems))
    return table


def comparison_table(comparison: Comparison) -> Table:
    """Both scores, their paired difference in points with interval and p-value, and McNemar's counts where they apply."""
    first, second = (result.record["model"]["label"] for result in (comparison.first, comparison.second))
    if first == second:
        first, second = comparison.first.scores_path.stem, comparison.second.scores_path.stem
    table = Table(title=f"{comparison.first.record['benchmark']}: paired over problems", title_justify="left")
    for column in ("score", first, second, "difference", "p", "McNemar", "n", "problems"):
        table.add_column(column, justify="left" if column == "score" else "right")
    for score in comparison.scores:
        difference, test = score.difference, score.mcnemar
        n = {score.first.samples, score.second.samples}
        table.add_row(
            score.name,
            format_estimate(score.first),
            format_estimate(score.second),
            f"{100 * difference.value:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]",
            _format_p(difference.p_value),
            "" if test is None else f"{test.only_first} : {test.only_second}, p {_format_p(test.p_value)}",
            " / ".join(str(count) for count in sorted(n)),
            str(difference.problems),
        )
    return table


def settings_line(result: Result) -> str:
    """Everything that decides the numbers of a result, in one line."""
    spec, model, versions = result.record["spec"], result.record["model"], result.record["versions"]
    return (
        f"{result.record['benchmark']}: temperature {spec['temperature']:g}, top-p {spec['top_p']:g}, "
        f"at most {spec['max_tokens']} tokens, prompt {spec['template_id']}, seed {spec['seed']}, "
        f"weights {model['weights_hash'][:12]}, problems {result.record['problems']['content_hash'][:12]}, "
        f"gmc {versions['gmc']}, torch {versions['torch']}, math-verify {versions['math-verify']}"
    )


def warning_lines(result: Result) -> list[str]:
    """What a reader of the scores must know: grading that failed, other content than known, notes of the loader."""
    record = result.record
    lines = [f"{record['benchmark']}: {note}" for note in record["notes"]]
    if record["problems"]["content_hash_matches"] is False:
        lines.append(
            f"{record['benchmark']}: the problems differ from the copy gmc knows (content "
            f"{record['problems']['content_hash'][:12]} instead of {record['problems']['expected_content_hash'][:12]}); "
            "compare scores only between results with the same content"
        )
    for decoding, counts in record["outcomes"].items():
        if counts["timeouts"] or counts["crashes"]:
            lines.append(
                f"{record['benchmark']}, {decoding}: {counts['timeouts']} answer checks timed out and {counts['crashes']} "
                f"crashed of {counts['responses']}; they count as wrong"
            )
    return lines


def _format_p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
