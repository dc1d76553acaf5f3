"""Generate once, take S steps: one version makes the batches of S updates."""

from gmc.delays.base import Arguments, DelayContext
from gmc.delays.in_order import InOrderDelay


class BlockDelay(InOrderDelay):
    """Update n trains on batch n, which version S·max(0, ⌊n / S⌋ − D) generated.

    With D = 0 version kS makes the S batches that its S updates use, so delays run through 0 … S − 1: the staleness of
    "generate once, take S steps" (verl's mini-batches of one rollout batch, and M2PO's setting). size: S, at least 1; blocks:
    D, how many blocks later a block is used; prompts: P, groups a batch; updates: the planned number, beyond
    which no batch is made.
    """

    name = "block"
    summary = "one version makes the batches of S updates, which use them at once or, with D, D blocks later"
    usage = "block:S[:D]"
    examples = ("block:16", "block:16:1")

    def __init__(self, size: int, blocks: int, *, prompts: int, updates: int) -> None:
        super().__init__(prompts=prompts, updates=updates)
        self._size = size
        self._blocks = blocks

    @classmethod
    def parse(cls, arguments: Arguments, context: DelayContext) -> "BlockDelay":
        size_text, *blocks_text = arguments.expect(1, 2)
        size = arguments.whole(size_text, "the block's size")
        if size == 0:
            arguments.refuse("a block of 0 updates trains on nothing; S is at least 1")
        blocks = arguments.whole(blocks_text[0], "the delay in blocks", unit="blocks") if blocks_text else 0
        return cls(size, blocks, prompts=context.prompts, updates=context.updates)

    def version_of(self, batch: int) -> int:
        return self._size * max(0, batch // self._size - self._blocks)
