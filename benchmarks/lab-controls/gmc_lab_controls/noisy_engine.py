"""The trainer's own network, its log-probs reported with noise: an engine that rounds otherwise, by a known amount."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from gmc.engines.base import Completion, Sampling
from gmc.engines.transformers import TransformersEngine

SPREAD = 0.35
"""Standard deviation of the noise on a sampled token's logit.

On the embedded model a log-prob is then off by 0.051, and that of a whole response (27 tokens) by 0.25: `noise/token_spread`
and `noise/response_spread` over 12 updates of `gmc train --engine noisy --estimator is --delay 0`.
"""


class NoisyEngine(TransformersEngine):
    """Samples what the transformers engine samples; reports log-probs as if each sampled token's logit were off by N(0, 0.35).

    A token of probability p is off by about (1 − p) times that: by all of it where p is small, by nothing where the token was
    certain. Added to the log-prob itself the noise would have to be cut at 0, and would then have a mean, so that the ratios
    of long responses would drift. With `rollout.logprobs = "trainer"` shards hold the noisy and the true log-probs, and a
    rule may weigh one against the other (`Need.ENGINE_LOGP`); with "engine" the noise is in every ratio.
    """

    name = "noisy"
    summary = "control: the transformers engine, N(0, 0.35) on the logit of each log-prob that it reports"

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        sampling: Sampling,
        seeds: Sequence[int],
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        """The same tokens as without noise; the noise is drawn from each prompt's seed."""
        groups = super().generate(prompts, group_size=group_size, sampling=sampling, seeds=seeds, progress=progress)
        return [_noisy(group, seed) for group, seed in zip(groups, seeds, strict=True)]


def _noisy(group: list[Completion], seed: int) -> list[Completion]:
    draw = torch.Generator().manual_seed(seed)
    made = []
    for one in group:
        logp_T = torch.tensor(one.logprobs, dtype=torch.float64)
        noise_T = SPREAD * torch.randn(len(logp_T), generator=draw, dtype=torch.float64)
        total_T = torch.log1p(logp_T.exp() * torch.expm1(noise_T))  # the softmax's new denominator over its old one
        made.append(replace(one, logprobs=(logp_T + noise_T - total_T).clamp(max=0).tolist()))
    return made
