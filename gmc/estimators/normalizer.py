"""The loss normalizers, where rules look for them; defined beside the settings that choose one."""

from gmc.config.normalizer import Normalizer

__all__ = ["Normalizer"]
