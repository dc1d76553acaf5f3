"""Every setting of gmc, typed, with defaults; recipes; and what the layers recipe, flags and --set say."""

from gmc.config.layers import Layers, lay
from gmc.config.settings import RunSettings

__all__ = ["Layers", "RunSettings", "lay"]
