"""Writing an export into a folder, or uploading it to the Hugging Face hub."""

import shutil
from collections.abc import Callable
from pathlib import Path

from gmc.errors import GmcError, UsageError
from gmc.export.plan import Plan
from gmc.hub import use_cache_when_unreachable
from gmc.loading.refusals import first_line
from gmc.store.files import new_directory, require_free

PIECE = 2**24
"""Bytes between two reports of progress."""


def write_folder(plan: Plan, folder: Path, advance: Callable[[int], None] = lambda count: None) -> None:
    """Write everything into a new folder, which appears when all of it is on the disk. advance: told of bytes as they come.

    Raises `UsageError` where something is already and for a place within the run, `GmcError` when the disk refuses; then
    nothing is left.
    """
    require_place(plan, folder)
    with new_directory(folder) as filling, plan.contents() as files:
        for file in files:
            target = filling / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(file.content, bytes):
                target.write_bytes(file.content)
                advance(file.size)
            else:
                _copy(file.content, target, advance)


def require_place(plan: Plan, folder: Path) -> None:
    """Raise `UsageError` for a folder where something is already, or within the run that the policy comes from."""
    require_free(folder)
    run = plan.chosen.path.resolve().parent.parent
    if folder.resolve().is_relative_to(run):
        raise UsageError(f"{folder}: lies in the run, where gmc takes folders for its own; give one outside of {run.name}")


def _copy(source: Path, target: Path, advance: Callable[[int], None]) -> None:
    with open(source, "rb") as reading, open(target, "wb") as writing:
        while piece := reading.read(PIECE):
            writing.write(piece)
            advance(len(piece))
    shutil.copymode(source, target)


def upload(plan: Plan, repository: str, *, private: bool) -> str:
    """Upload everything as one commit to a repository of the hub, made where there is none; returns the commit's address.

    Raises `GmcError` at once when the hub is out of reach, and in one line when it refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    use_cache_when_unreachable()
    if constants.HF_HUB_OFFLINE:
        raise GmcError(
            f"{repository}: the hub cannot be reached from here; write a folder (--to FOLDER) and upload it where it can: "
            f"hf upload {repository} FOLDER"
        )
    api = HfApi()
    try:
        with plan.contents() as files:
            operations = [
                CommitOperationAdd(file.name, file.content if isinstance(file.content, bytes) else str(file.content))
                for file in files
            ]
            api.create_repo(repository, private=private, exist_ok=True)
            done = api.create_commit(repository, operations, commit_message=f"Policy version {plan.chosen.version}")
    except (HfHubHTTPError, OSError, ValueError) as error:  # a missing token is an OSError, a bad name a ValueError
        raise GmcError(
            f"{repository}: the hub refused: {first_line(error)}; log in with `hf auth login`, and check that the name is yours"
        ) from error
    return str(done.commit_url)
