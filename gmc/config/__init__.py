"""Every setting of gmc, typed, with defaults; recipes; and how defaults, recipe and flags become one object."""

from gmc.config.resolve import resolve_settings
from gmc.config.settings import Settings

__all__ = ["Settings", "resolve_settings"]
