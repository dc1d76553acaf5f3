"""`gmc shards`: bring anybody's rollouts in, and check shards that something else wrote."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gmc.cli.options import JsonOption

shards_app = typer.Typer(no_args_is_help=True, help="Rollouts on disk: import those of another sampler, check shards.")


@shards_app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="Parquet, JSONL, JSON or CSV: one row a response.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to make; the shards go into its rollouts/.")],
    model: Annotated[str, typer.Option("--model", help="Whose tokenizer it is: embedded, a folder, or a hub id.")] = "embedded",
    policy_version: Annotated[
        int | None,
        typer.Option("--policy-version", min=0, help="Version of rows without a column policy_version.", show_default=False),
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", help="Temperature at which they were sampled.")] = 1.0,
    prompts: Annotated[int, typer.Option("--prompts", min=1, help="Groups a file.")] = 8,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column", metavar="WHAT=NAME", help="The file's own name of a column. May be repeated.", show_default=False
        ),
    ] = None,
    score: Annotated[
        bool, typer.Option("--score", help="Compute log-probs by --model, which must be the policy that sampled.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write the rollouts of another sampler as shards, to train on with --rollouts OUT --delay shards."""
    from gmc.cli.output import print_json, write_line
    from gmc.cli.progress import progress_bar
    from gmc.errors import UsageError
    from gmc.generation.frames import read_frame
    from gmc.loading.named import require_model

    pairs = []
    for text in column or ():
        what, equals, name = text.partition("=")
        if not (equals and what.strip() and name.strip()):
            raise UsageError(f"--column {text}: write it as WHAT=NAME, for example --column reward=total_score")
        pairs.append((what.strip(), name.strip()))
    require_model(model)
    frame = read_frame(file, dict(pairs))

    from gmc.generation.importing import ImportOptions, import_rollouts  # it imports torch

    options = ImportOptions(model, policy_version, temperature, prompts, tuple(pairs), score)
    with progress_bar("import", len(frame.rows) * (2 if score else 1), "rows") as bar:
        summary = import_rollouts(frame, out, options, bar.advance)
    if json:
        print_json(summary.record())
        return
    if summary.last_version is None:
        versions, start = "versions not known", ""
    else:
        same = summary.last_version == summary.first_version
        versions = f"version {summary.first_version}" + ("" if same else f" to {summary.last_version}")
        start = f" --start-version {summary.last_version}"
    kind = "" if score else " --logprobs engine"
    write_line(
        f"{summary.folder}: {summary.files} shards, {summary.groups} groups of {summary.group_size} "
        f"responses, {versions}; next: "
        f"gmc train --rollouts {out} --delay shards{start} "
        f"--group-size {summary.group_size}{kind}"
    )


@shards_app.command("check")
def check(
    paths: Annotated[list[Path], typer.Argument(help="Shards, or folders of them.")],
    json: JsonOption = False,
) -> None:
    """Read shards as training does, every value; the first that breaks the contract is named."""
    from gmc.cli.output import print_json, write_line
    from gmc.cli.progress import progress_bar
    from gmc.errors import UsageError
    from gmc.store.run_directory import RunDirectory
    from gmc.store.shards.store import scan

    files = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        found = [stored.path for stored in scan(RunDirectory.rollouts_of(path))] if path.is_dir() else [path]
        if not found:
            raise UsageError(f"{path}: no shards here (files named b000000-v000000.parquet)")
        files += found
    records = []
    with progress_bar("check", len(files), "shards") as bar:
        for file in files:
            records.append(_checked(file))
            if not json:
                write_line(_in_words(records[-1]))
            bar.advance()
    if not json:
        write_line(f"shards that are whole: {len(files)}, of {sum(record['rows'] for record in records)} rows")
    if json:
        print_json({"shards": records})


def _checked(file: Path) -> dict[str, Any]:
    """Read a shard as training does, and say what it holds."""
    from gmc.store.shards.reader import read_shard

    shard = read_shard(file)
    about = shard.metadata
    return {
        "file": str(file),
        "schema_version": about.schema_version,
        "rows": len(shard.rollouts),
        "group_size": about.group_size,
        "policy_versions": sorted({row.policy_version for row in shard.rollouts}),
        "logprob_kinds": list(about.logprob_kinds),
        "rewards": list(about.rewards),
    }


def _in_words(record: dict[str, Any]) -> str:
    versions, kinds = ", ".join(map(str, record["policy_versions"])), ", ".join(record["logprob_kinds"])
    return (
        f"{record['file']}: schema {record['schema_version']}, {record['rows']} rows in groups of {record['group_size']}, "
        f"policy version {versions}, log-probs {kinds}"
    )
