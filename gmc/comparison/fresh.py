"""The on-policy gradient, estimated from fresh responses of the policy to the stored prompts."""

from collections.abc import Callable
from contextlib import closing

import torch

from gmc.comparison.stored import StoredBatch
from gmc.engines.transformers import TransformersEngine
from gmc.environments.single import Single
from gmc.errors import UsageError
from gmc.estimators.base import leave_one_out
from gmc.estimators.gradient import Gradient
from gmc.estimators.normalizer import Normalizer
from gmc.gradients.normalize import coefficients
from gmc.gradients.rule_gradient import model_gradient
from gmc.problems.base import Problem
from gmc.rewards.math import Math
from gmc.rewards.specs import parse_reward
from gmc.rollouts.asked import Asked
from gmc.rollouts.maker import sampling_seed
from gmc.rollouts.respond import respond
from gmc.scoring.scorer import Scorer
from gmc.store.shards.rollout import ShardMetadata


def fresh_gradients(
    scorer: Scorer, stored: StoredBatch, normalizer: Normalizer, *, repeats: int, seed: int, advance: Callable[[int], None]
) -> list[Gradient]:
    """One on-policy gradient a repeat: G fresh responses to each stored prompt, leave-one-out advantages, weight 1.

    advance: called with the number of newly finished responses. The repeats are independent; their mean is the estimate, and
    the cosine of two halves says how far it can be trusted. Raises `UsageError` for rollouts of another reward than `math`:
    shards keep the gold answer of a problem and not the other columns that a reward may want.
    """
    require_math(stored.metadata)
    engine = TransformersEngine(scorer.model, compute_dtype=None)
    asked_P = [
        Asked(Problem(row.problem_id, "", row.answer), row.prompt, row.prompt_token_ids)
        for row in (group[0] for group in stored.groups)
    ]
    prompts_P = [asked.token_ids for asked in asked_P]
    gradients = []
    with closing(Math()) as reward:
        for repeat in range(repeats):
            groups = respond(
                engine,
                scorer.model.tokenizer,
                reward,
                asked_P,
                group_size=stored.metadata.group_size,
                sampling=stored.sampling,
                seeds=[sampling_seed(seed, repeat, group) for group in range(len(prompts_P))],
                progress=advance,
            )
            rewards_PG = torch.tensor([[response.reward for response in group] for group in groups])
            current = scorer.forward(prompts_P, [[response.completion.token_ids for response in group] for group in groups])
            weight_BT = coefficients(current.mask_BT, normalizer, stored.sampling.max_tokens)
            grad_BT = weight_BT * leave_one_out(rewards_PG).reshape(-1, 1).to(weight_BT.device)
            gradients.append(model_gradient(scorer.parameters, current, grad_BT).clone())
    return gradients


def require_math(metadata: ShardMetadata) -> None:
    """Raise `UsageError` for rollouts that were not rewarded by `math` alone."""
    others = [text for text in metadata.rewards if parse_reward(text).target != Math.name]
    if others or len(metadata.rewards) > 1:
        raise UsageError(
            f"fresh responses to stored prompts can be rewarded by math alone, and these rollouts were by "
            f"{' and '.join(metadata.rewards)}; leave --fresh out"
        )
    if metadata.environment not in (None, Single.name):
        raise UsageError(
            f"fresh responses to stored prompts have one turn, and these rollouts were made in the environment "
            f"{metadata.environment}; leave --fresh out"
        )


def mean_gradient(gradients: list[Gradient]) -> Gradient:
    """Their arithmetic mean. Raises `ValueError` for none."""
    if not gradients:
        raise ValueError("no gradients to average")
    total = gradients[0].clone()
    for gradient in gradients[1:]:
        total = total.add(gradient, 1.0)
    return total.of([tensor / len(gradients) for tensor in total.tensors])
