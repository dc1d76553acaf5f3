"""Results as tables for a terminal. A score never stands without its n, its number of problems and its interval."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from gmc.evaluation.compare import Comparison
from gmc.evaluation.results import Result
from gmc.evaluation.rewarded import Rewarded, format_value
from gmc.evaluation.statistics import Estimate
from gmc.evaluation.tables import new_table


def format_estimate(value: Estimate, binary: bool = True) -> str:
    """A score with its 95 % interval, a share of right answers in percent: "61.3 [57.0, 65.5]"."""
    middle, low, high = (format_value(each, binary) for each in (value.value, value.low, value.high))
    return f"{middle} [{low}, {high}]"


def result_tables(results: Sequence[Result]) -> Sequence[Table]:
    """One table a benchmark, one row a score of each model: % correct with interval, n, and how the responses ended."""
    tables: dict[str, Table] = {}
    for result in results:
        benchmark = result.record["benchmark"]
        if benchmark not in tables:
            tables[benchmark] = new_table(
                f"{benchmark}: {result.record['problems']['count']} problems, {_unit(result)} with 95 % interval over problems",
                ("model", "score"),
                ("correct" if result.rewarded.binary else "reward", "n", "tokens", "cut off", "no answer"),
            )
        for index, (name, value) in enumerate(result.estimates().items()):
            counts = result.record["outcomes"]["greedy" if name.partition(" ")[0] == "greedy" else "sampled"]
            tables[benchmark].add_row(
                result.record["model"]["label"] if index == 0 else "",
                name,
                _marked(value, result.rewarded, name),
                str(value.samples),
                f"{counts['mean_response_tokens']:.0f}",
                f"{100 * counts['truncated_share']:.1f} %",
                f"{100 * counts['unparseable_share']:.1f} %",
            )
    return list(tables.values())


def _unit(result: Result) -> str:
    return "% correct" if result.rewarded.binary else f"mean reward ({' + '.join(result.rewarded.labels)})"


def _marked(value: Estimate, rewarded: Rewarded, name: str) -> str:
    """A score with its interval; a share among other numbers says that it is in percent."""
    share = rewarded.is_binary(name)
    return format_estimate(value, share) + (" %" if share and not rewarded.binary else "")


def mean_table(name: str, values: Mapping[str, Estimate], members: Sequence[str], binary: bool = True) -> Table:
    """One policy's means over several benchmarks. binary: whether they are shares of right answers."""
    table = new_table(f"{name}: mean over {', '.join(members)}", ("score",), ("correct", "n at least", "problems"))
    for score, value in values.items():
        table.add_row(score, format_estimate(value, binary), str(value.samples), str(value.problems))
    return table


def comparison_table(comparison: Comparison) -> Table:
    """Both scores, their paired difference in points with interval and p-value."""
    first, second = comparison_names(comparison)
    problems = comparison.first.record["problems"]["count"]
    table = new_table(
        f"{comparison.first.record['benchmark']}: {second} minus {first}, paired over {problems} problems",
        ("score",),
        (first, second, "difference", "p", "n"),
    )
    for score in comparison.scores:
        difference = score.difference
        table.add_row(
            score.name,
            format_estimate(score.first, score.binary).replace(" [", "\n["),
            format_estimate(score.second, score.binary).replace(" [", "\n["),
            "{}\n[{}, {}]".format(
                *(format_value(each, score.binary, sign="+") for each in (difference.value, difference.low, difference.high))
            ),
            _format_p(difference.p_value),
            " / ".join(str(count) for count in sorted({score.first.samples, score.second.samples})),
        )
    return table


def comparison_names(comparison: Comparison) -> tuple[str, str]:
    """What to call the two sides: the models, or "first" and "second" where those have one name."""
    first, second = (str(result.record["model"]["label"]) for result in (comparison.first, comparison.second))
    return (first, second) if first != second else ("first", "second")


def mcnemar_lines(comparison: Comparison) -> list[str]:
    """McNemar's test in words, for scores with one right-or-wrong outcome a problem."""
    first, second = comparison_names(comparison)
    return [
        f"{score.name}: {counted(score.mcnemar.only_first, 'problem')} solved only by {first}, "
        f"{score.mcnemar.only_second} only by {second}, of {score.difference.problems} "
        f"(McNemar, exact: p {_format_p(score.mcnemar.p_value)})"
        for score in comparison.scores
        if score.mcnemar is not None
    ]


def settings_line(result: Result) -> str:
    """Everything that decides the numbers of a result, in one line."""
    spec, model, versions = result.record["spec"], result.record["model"], result.record["versions"]
    share = model.get("version_0_share")
    learned = "" if share is None else f"{100 * share:.0f} % of the learning rate on rollouts of version 0, "
    return (
        f"{result.record['benchmark']}: temperature {spec['temperature']:g}, top-p {spec['top_p']:g}, "
        f"at most {spec['max_tokens']} tokens, prompt {spec['template_id']}, seed {spec['seed']}, "
        f"{learned}weights {model['weights_hash'][:12]}, problems {result.record['problems']['content_hash'][:12]}, "
        + ", ".join(f"{name} {versions.get(name, 'unknown')}" for name in ("gmc", "torch", "math-verify"))
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
    flat = [name for name, value in result.estimates().items() if value.low == value.high]
    if flat:
        lines.append(f"{record['benchmark']}: all problems score the same in {', '.join(flat)}, so its interval says nothing")
    return lines


def _format_p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def counted(number: int, thing: str) -> str:
    """A number with its noun: "1 problem", "3 problems"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
