"""Response lengths for driving a delay model."""

from gmc.testing.delays import Lengths


def constant(length: int, prompts: int = 4, group_size: int = 2) -> Lengths:
    return lambda batch: [[length] * group_size for _ in range(prompts)]


def varied(prompts: int = 4, group_size: int = 2) -> Lengths:
    """Lengths that differ by batch, group and sample, from plain arithmetic."""
    return lambda batch: [
        [(batch * 37 + group * 101 + sample * 53) % 400 for sample in range(group_size)] for group in range(prompts)
    ]
