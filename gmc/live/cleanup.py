"""Removing old policies that no follower holds."""

from gmc.live.heartbeats import Watcher
from gmc.store.files import withdraw_directory
from gmc.store.policies import list_policies
from gmc.store.run_directory import RunDirectory

NEWEST_KEPT = 2
"""A follower may be about to load the newest policy it saw, which is the last but one by now."""


def clean_policies(run: RunDirectory, watcher: Watcher, keep_every: int, keep: int | None = None) -> list[int]:
    """Remove published policies and return their versions.

    The newest ones stay, those that a living follower holds, every `keep_every`-th version, for evaluation, and version `keep`.
    """
    held = {keep, *(heartbeat.version for heartbeat in watcher.look().values())}
    removed = []
    for version, path in list_policies(run.policies)[:-NEWEST_KEPT]:
        if version not in held and version % keep_every:
            withdraw_directory(path)
            removed.append(version)
    return removed
