"""The on-policy gradient, estimated from fresh responses of the policy to the stored prompts."""

from collections.abc import Callable

import torch

from gmc.comparison.stored import StoredBatch
from gmc.engines.transformers import TransformersEngine
from gmc.estimators.base import leave_one_out
from gmc.estimators.gradient import Gradient
from gmc.estimators.normalizer import Normalizer
from gmc.gradients.normalize import coefficients
from gmc.gradients.rule_gradient import model_gradient
from gmc.grading import Grader
from gmc.grading.thinking import opens_thinking
from gmc.rollouts.maker import sampling_seed
from gmc.rollouts.respond import respond
from gmc.scoring.scorer import Scorer


def fresh_gradients(
    scorer: Scorer, stored: StoredBatch, normalizer: Normalizer, *, repeats: int, seed: int, advance: Callable[[int], None]
) -> list[Gradient]:
    """One on-policy gradient a repeat: G fresh responses to each stored prompt, leave-one-out advantages, weight 1.

    advance: called with the number of newly finished responses. The repeats are independent; their mean is the estimate, and
    the cosine of two halves says how far it can be trusted.
    """
    engine = TransformersEngine(scorer.model, compute_dtype=None)
    prompts_P = [group[0].prompt_token_ids for group in stored.groups]
    golds_P = [group[0].answer for group in stored.groups]
    gradients = []
    with Grader() as grader:
        for repeat in range(repeats):
            groups = respond(
                engine,
                scorer.model.tokenizer,
                grader,
                prompts_P,
                golds_P,
                group_size=stored.metadata.group_size,
                sampling=stored.sampling,
                seeds=[sampling_seed(seed, repeat, group) for group in range(len(prompts_P))],
                thinking_P=[opens_thinking(group[0].prompt or "") for group in stored.groups],
                progress=advance,
            )
            rewards_PG = torch.tensor([[response.reward for response in group] for group in groups])
            current = scorer.forward(prompts_P, [[response.completion.token_ids for response in group] for group in groups])
            weight_BT = coefficients(current.mask_BT, normalizer, stored.sampling.max_tokens)
            grad_BT = weight_BT * leave_one_out(rewards_PG).reshape(-1, 1).to(weight_BT.device)
            gradients.append(model_gradient(scorer.model, current, grad_BT).clone())
    return gradients


def mean_gradient(gradients: list[Gradient]) -> Gradient:
    """Their arithmetic mean. Raises `ValueError` for none."""
    if not gradients:
        raise ValueError("no gradients to average")
    total = gradients[0].clone()
    for gradient in gradients[1:]:
        total = total.add(gradient, 1.0)
    return Gradient([tensor / len(gradients) for tensor in total.tensors])
