"""The tiny language model that ships in the package, and the script that made it."""

from pathlib import Path


def embedded_model_path() -> Path:
    """The Hugging Face folder of the shipped model."""
    return Path(__file__).parent / "model"
