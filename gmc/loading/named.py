"""Whether the name of a model can mean anything, before the libraries are loaded that would open it. Imports no torch."""

import os
from pathlib import Path

from gmc.config.fields import EMBEDDED
from gmc.errors import UsageError, did_you_mean
from gmc.hub import is_offline, use_cache_when_unreachable

NEEDED = f"name a Hugging Face model folder, a hub model or '{EMBEDDED}'"


def require_model(source: str) -> None:
    """Raise `UsageError` for a folder that is not there, and, without network, for a hub name that is not in the cache."""
    if source == EMBEDDED or os.path.isdir(source):
        return
    if not source.strip() or "\0" in source:
        raise UsageError(f"model.source = {source!r}: {NEEDED}")
    if looks_like_path(source):
        raise UsageError(f"{source}: no such folder. {NEEDED[0].upper()}{NEEDED[1:]}.")
    use_cache_when_unreachable()
    if is_offline() and source not in (cached := cached_models()):
        cure = did_you_mean(source, cached) or "; check the name"
        raise UsageError(f"model '{source}': neither a folder here nor in the cache of the hub, which cannot be reached{cure}")


def looks_like_path(name: str) -> bool:
    """Whether a name can only be that of a folder."""
    return name.startswith(("/", "./", "../", "~")) or name.count("/") > 1 or name in {".", ".."} or os.path.exists(name)


def cached_models() -> list[str]:
    """The hub names of which the cache holds a version."""
    from huggingface_hub import constants

    found = Path(constants.HF_HUB_CACHE).glob("models--*/snapshots/*")
    return sorted({path.parent.parent.name.removeprefix("models--").replace("--", "/") for path in found})
