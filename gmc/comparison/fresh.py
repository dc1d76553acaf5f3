"""The on-policy gradient, estimated from fresh responses of the policy to the stored prompts."""

from collections.abc import Callable

import torch

from gmc.comparison.stored import StoredBatch
from gmc.engines.transformers import TransformersEngine
from gmc.estimators.base import leave_one_out
from gmc.estimators.gradient import Gradient
from gmc.estimators.normalizer import Normalizer
from gmc.gradients.normalize import coefficients
from gmc.grading import Grader
from gmc.rollouts.maker import sampling_seed
from gmc.scoring.scorer import Scorer


def fresh_gradients(
    scorer: Scorer, stored: StoredBatch, normalizer: Normalizer, *, repeats: int, seed: int, advance: Callable[[int], None]
) -> list[Gradient]:
    """One on-policy gradient a repeat: G fresh responses to each stored prompt, leave-one-out advantages, weight 1.

    advance: called with the number of newly finished responses. The repeats are independent; their mean is the estimate, and
    the cosine of two halves says how far it can be trusted.
    """
    model = scorer.model
    engine = TransformersEngine(model, compute_dtype=None)
    prompts_P = [group[0].prompt_token_ids for group in stored.groups]
    size = stored.metadata.group_size
    parameters = [p for p in model.network.parameters() if p.requires_grad]
    gradients = []
    with Grader() as grader:
        for repeat in range(repeats):
            seeds = [sampling_seed(seed, repeat, group) for group in range(len(prompts_P))]
            sampled = engine.generate(prompts_P, group_size=size, sampling=stored.sampling, seeds=seeds, progress=advance)
            pairs, cut = [], []
            for group, completions in zip(stored.groups, sampled, strict=True):
                for completion in completions:
                    text = model.tokenizer.decode(completion.token_ids, skip_special_tokens=True)
                    pairs.append((group[0].answer, str(text)))
                    cut.append(completion.finish_reason == "length")
            verdicts = grader.grade_many(pairs, truncated=cut)
            rewards_PG = torch.tensor([float(verdict.correct) for verdict in verdicts]).reshape(-1, size)
            current = scorer.forward(prompts_P, [[one.token_ids for one in group] for group in sampled])
            weight_BT = coefficients(current.mask_BT, normalizer, stored.sampling.max_tokens)
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)
            current.backward(weight_BT * leave_one_out(rewards_PG).reshape(-1, 1).to(weight_BT.device))
            gradients.append(Gradient([p.grad for p in parameters if p.grad is not None]).clone())
            for parameter in parameters:
                parameter.grad = None
    return gradients


def mean_gradient(gradients: list[Gradient]) -> Gradient:
    """Their arithmetic mean. Raises `ValueError` for none."""
    if not gradients:
        raise ValueError("no gradients to average")
    total = gradients[0].clone()
    for gradient in gradients[1:]:
        total = total.add(gradient, 1.0)
    return Gradient([tensor / len(gradients) for tensor in total.tensors])
