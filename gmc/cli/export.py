"""`gmc export`: a policy out of its run, as a folder or on the hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gmc.cli import options

if TYPE_CHECKING:
    from gmc.export.plan import Plan

HUB = "hf://"


def export(
    run: options.RunArgument = None,
    run_flag: options.RunFlag = None,
    to: Annotated[
        str, typer.Option("--to", metavar="FOLDER|hf://USER/NAME", help="A new folder, or a model repository of the hub.")
    ] = "",
    policy: Annotated[
        str, typer.Option("--policy", help="latest, best (by the run's own evaluations) or a version.")
    ] = "latest",
    merge: Annotated[bool, typer.Option("--merge", help="Put an adapter into the weights under it.")] = False,
    base: Annotated[
        str,
        typer.Option("--base", help="What others call the starting model, where the run knows a folder.", show_default=False),
    ] = "",
    license_id: Annotated[
        str, typer.Option("--license", help="License of the policy. (default: that of the starting model)", show_default=False)
    ] = "",
    public: Annotated[bool, typer.Option("--public", help="A repository that is made now is public, not private.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Do it. Without, only what would be written is shown.")] = False,
    json: options.JsonOption = False,
) -> None:
    """Show, and with --write do: put a policy with its model card into a folder, or upload it."""
    from gmc.cli.output import print_json, write_line
    from gmc.errors import UsageError
    from gmc.store.run_directory import RunDirectory

    folder = options.looked_at(run, run_flag)
    if not to:
        raise UsageError(f"--to is missing; give a new folder, or {HUB}USER/NAME for the hub")
    to = HUB + to[len(HUB) :] if to.lower().startswith(HUB) else to
    repository = to.removeprefix(HUB) if to.startswith(HUB) else ""
    if to.startswith(HUB) and (repository.count("/") != 1 or not all(repository.split("/"))):
        raise UsageError(f"--to {to}: a repository of the hub is written {HUB}USER/NAME")
    directory = RunDirectory.open(folder)

    from gmc.export.plan import plan_export  # it imports torch
    from gmc.export.write import require_place

    plan = plan_export(directory, policy=policy, repository=repository, base=base, license_id=license_id, merge=merge)
    if not repository:
        require_place(plan, Path(to))
    for note in plan.notes:
        write_line(f"note: {note}")
    where = _write(plan, to, repository, public) if write else to
    if json:
        files = [{"name": file.name, "bytes": file.size} for file in plan.files]
        print_json({"to": where, "written": write, "policy": str(plan.chosen.path), "files": files, "card": plan.card})
        return
    _describe(plan, where, repository, public, write)


def _describe(plan: "Plan", where: str, repository: str, public: bool, written: bool) -> None:
    from gmc.cli.output import stderr, write_line
    from gmc.cli.streams import shown

    if not written:
        typer.echo(shown(plan.card))
    whole = sum(file.size for file in plan.files)
    size = f"{len(plan.files)} files, {whole / 1e6:.1f} MB" + (", and the merged weights" if plan.merge else "")
    kind = f" ({'public' if public else 'private'} if it is made now)" if repository else ""
    stderr.say(f"{plan.chosen.path} ({plan.chosen.how})")
    write_line(f"wrote {size}: {where}" if written else f"nothing written; --write puts {size} into {where}{kind}")


def _write(plan: "Plan", to: str, repository: str, public: bool) -> str:
    from gmc.cli.progress import progress_bar
    from gmc.export.write import upload, write_folder

    if repository:
        return upload(plan, repository, private=not public)
    whole = sum(file.size for file in plan.files) // 2**20 + 1
    with progress_bar("export", whole, "MiB") as bar:
        written = shown = 0

        def advance(count: int) -> None:
            nonlocal written, shown
            before, written = shown, written + count
            shown = min(written // 2**20, whole - 1)  # merged weights may differ in size from what was planned
            bar.advance(shown - before)

        write_folder(plan, Path(to), advance)
        bar.advance(whole - shown)  # the last one, which is rarely full
    return to
