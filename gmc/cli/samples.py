"""`gmc samples`: look at what was sampled."""

from pathlib import Path
from typing import Annotated

import typer

from gmc.cli import options

FILTERS, SHOWN = "Which rollouts", "What is shown"


def samples(
    run: options.RunArgument = None,
    run_flag: options.RunFlag = None,
    show: Annotated[
        list[str] | None,
        typer.Option(
            "--show",
            help="best, worst, truncated, unparseable, disagreement (of the reward's parts). May be repeated. (default: all)",
            show_default=False,
            rich_help_panel=SHOWN,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", metavar="BATCH:GROUP", help="One group side by side.", show_default=False, rich_help_panel=SHOWN
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Responses of each kind.", rich_help_panel=SHOWN)] = 2,
    color: Annotated[
        str | None,
        typer.Option(
            "--color",
            help="Color tokens by logprob (how likely), ratio (newest policy over the one that sampled) or weight (what the "
            "run's rule makes of them).",
            show_default=False,
            rich_help_panel=SHOWN,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write one self-contained page instead.", show_default=False, rich_help_panel=SHOWN),
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Of this launch batch.", rich_help_panel=FILTERS)] = None,
    version: Annotated[
        int | None, typer.Option("--version", help="Sampled by this policy version.", rich_help_panel=FILTERS)
    ] = None,
    problem: Annotated[str, typer.Option("--problem", help="To this problem, by its id.", rich_help_panel=FILTERS)] = "",
    status: Annotated[str, typer.Option("--status", help="With this status, such as incorrect.", rich_help_panel=FILTERS)] = "",
    contains: Annotated[str, typer.Option("--contains", help="That hold this text.", rich_help_panel=FILTERS)] = "",
    json: options.JsonOption = False,
) -> None:
    """Look at what was sampled: the best, the worst, cut off, without an answer, in dispute, or one group side by side.

    RUN may be a folder of shards, too.
    """
    from gmc.cli.output import PlainConsole, print_json, write_line
    from gmc.cli.samples_view import record, sections, terminal_view
    from gmc.store.run_directory import RunDirectory
    from gmc.store.shards.select import Wanted, read_wanted

    folder = options.looked_at(run, run_flag)
    seen = read_wanted(RunDirectory.rollouts_of(folder), Wanted(batch, version, problem, status, contains))
    chosen = sections(seen, show or (), group, count)
    if color is not None:
        from gmc.cli.samples_view import colored

        chosen = colored(chosen, color, folder)
    if html is not None:
        from gmc.cli.samples_page import page
        from gmc.store.files import write_text

        write_text(html, page(str(folder), len(seen), chosen))
        write_line(f"wrote {html}")
    elif json:
        print_json(record(chosen))
    else:
        PlainConsole(highlight=False).print(terminal_view(len(seen), chosen))
