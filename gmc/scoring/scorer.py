"""Log-probs of responses under a model: behavior, current and anchor log-probs all come from `Scorer`, with one plan."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gmc.errors import UsageError
from gmc.models import LanguageModel
from gmc.parameters.base import Parameters
from gmc.parameters.whole import Whole
from gmc.scoring.compiled import CompiledModules
from gmc.scoring.dealing import Steps, lengths, make_steps
from gmc.scoring.forward import Forward, Weigh, Work
from gmc.scoring.passes import PackedPass, Pass, Prompts, Responses, StockPass
from gmc.scoring.plain_pass import PlainPass, trained_structure
from gmc.scoring.plan import Masks, MicroBatch, Piece, largest_first, without_tails
from gmc.scoring.probe import packed_mismatch
from gmc.scoring.room import Room

logger = logging.getLogger(__name__)

DEFAULT_TOKEN_BUDGET = 4096
"""Input tokens of one micro-batch."""


@dataclass(frozen=True)
class Scores:
    """Scores without a graph. logp_BT: log-probs of the sampled tokens, 0 at padding; mask_BT: True at sampled tokens;
    entropies_BT: entropy (nats) of each next-token distribution, 0 at padding, None unless asked for.

    T counts sampled tokens: what an environment wrote between them is read as context and has no column."""

    logp_BT: Tensor
    mask_BT: Tensor
    entropies_BT: Tensor | None = None


class _Scored(NamedTuple):
    """What was scored last, and with which weights."""

    prompts_P: Prompts
    responses_PG: Responses
    masks_PG: Masks
    weights: tuple[int, ...]
    logp_BT: Tensor


class Scorer:
    """Scores responses with one model at one temperature.

    model: its network is used in place, in evaluation mode. temperature: the sampling temperature, which belongs to the
    policy. token_budget: input tokens of a micro-batch, each shared prompt counted once. compute_dtype: autocast type
    (bfloat16), None for float32; the head and its log-softmax are float32 always. share_prompts: compute a group's prompt
    once. checkpointing: keep only each layer's input and recompute the layer in backward. compiled: feed-forward blocks
    and norms through torch.compile. parameters: who holds the model's, this process alone by default; their ranks score
    together, each its share of the groups, and every one of them has to call and gets the scores of all.

    At construction the packed pass is compared with the network's own forward on a few random tokens. If they differ (soft
    caps, scaled logits, sliding windows, no attention at all) the stock pass is used and a warning says so; `shares_prompts`
    tells which. Raises `UsageError` for a temperature that is not positive, and for a network in parts that needs the
    stock pass.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        temperature: float = 1.0,
        token_budget: int = DEFAULT_TOKEN_BUDGET,
        compute_dtype: torch.dtype | None = None,
        share_prompts: bool = True,
        checkpointing: bool = False,
        compiled: bool = False,
        parameters: Parameters | None = None,
    ) -> None:
        if temperature <= 0:
            raise UsageError(f"temperature = {temperature}: log-probs of a policy need a temperature above 0.")
        self.model = model
        self.token_budget = token_budget
        self.parameters = Whole(model) if parameters is None else parameters
        self.ranks = self.parameters.ranks
        modules = CompiledModules(model.network, model.device) if compiled else None
        settings = (model.network, model.vocabulary_size, temperature, compute_dtype, checkpointing, modules, model.absent_ids)
        mismatch = packed_mismatch(model)
        if mismatch is not None:
            if self.parameters.lockstep:
                raise UsageError(
                    f"train.sharding = full: {model.source} is scored by its own forward, which the ranks would not make in "
                    f"step ({mismatch}); use --set train.sharding=none"
                )
            logger.warning("%s: scored by the model's own forward, without sharing prompts: %s", model.source, mismatch)
        self.active_pass: Pass = PackedPass(*settings) if mismatch is None else StockPass(*settings)
        stock_modules = checkpointing or compiled or compute_dtype not in (None, torch.float32) or self.parameters.lockstep
        structure = None if mismatch is not None or stock_modules else trained_structure(model)
        if structure is not None:
            self.active_pass = PlainPass(*settings, structure=structure)
        self.shares_prompts = share_prompts and mismatch is None
        self._last: _Scored | None = None

    def steps(self, prompts_P: Prompts, responses_PG: Responses) -> Steps:
        """The micro-batches of a batch; the same for scoring and for training. Errors as for `score`.

        responses_PG: up to the last sampled token of each.
        """
        _check(prompts_P, responses_PG)
        return make_steps(
            *lengths(prompts_P, responses_PG),
            self.token_budget,
            rank=self.ranks.rank,
            ranks=self.ranks.count,
            share_prompts=self.shares_prompts,
            lockstep=self.parameters.lockstep,
        )

    @torch.no_grad()
    def score(self, prompts_P: Prompts, responses_PG: Responses, masks_PG: Masks = None, *, entropies: bool = False) -> Scores:
        """Log-probs of every sampled token, without a graph.

        prompts_P: token ids of each prompt, at least one; responses_PG: G responses to each; masks_PG: which of their tokens
        the model sampled, None for all. With the same weights the result equals `forward(...).logp_BT` bit for bit. Raises
        `UsageError` for an empty prompt, unequal group sizes, or a mask of another length than its response.
        """
        work = self._work(prompts_P, responses_PG, masks_PG)
        scores = self._run(work, entropies=entropies)
        self._last = _Scored(*work.texts, self.parameters.versions(), scores.logp_BT.clone())
        return scores

    def forward(self, prompts_P: Prompts, responses_PG: Responses, masks_PG: Masks = None) -> Forward:
        """Log-probs of every sampled token, ready for `Forward.backward`. Arguments and errors as for `score`.

        Those that `score` gave last, with the same weights, are taken over: on-policy training has scored its batch when it
        was made, and a second pass would give the same bits. Otherwise the graph of the largest micro-batch is kept, so memory
        stays within one micro-batch's.
        """
        work, last = self._work(prompts_P, responses_PG, masks_PG), self._last
        current = self._ahead(work, largest_first(work.plan)[:1])
        if last is not None and last[:4] == (*work.texts, current.versions):
            current.logp_BT.copy_(last.logp_BT)
            return current
        current.run(range(len(work.plan)), lambda index: index in current.whole)
        self.ranks.add([current.logp_BT])
        return current

    def forward_once(
        self, prompts_P: Prompts, responses_PG: Responses, masks_PG: Masks = None, *, weigh: Weigh | None
    ) -> Forward:
        """The same for a batch that was not scored with these weights: no micro-batch is run twice if that can be helped.

        weigh: where a row's gradient depends on its own group alone, what gives it; each micro-batch then goes forward and back
        before the next, and the parameters' `.grad` (to be zeroed before) holds the result. Without it, or where a single
        micro-batch or group holds everything, or ranks that go their own ways hold parts of one group, graphs are kept for
        `Forward.backward` as memory allows. Ranks in lockstep keep one graph at most: they have to run the same again.
        """
        work, lockstep = self._work(prompts_P, responses_PG, masks_PG), self.parameters.lockstep
        current = self._ahead(work, range(len(work.plan)))
        alone = work.steps.cut and not lockstep
        current.run_once(None if alone else weigh, None if lockstep else lambda: Room(self.model.network))
        if current.passed_BT is None or not lockstep:
            self.ranks.add([current.logp_BT])
        return current

    def _work(self, prompts_P: Prompts, responses_PG: Responses, masks_PG: Masks) -> Work:
        responses_PG, masks_PG = without_tails(responses_PG, masks_PG)
        steps = self.steps(prompts_P, responses_PG)
        mask_BT = sampled_mask(responses_PG, masks_PG, self.model.device)
        return Work(self.active_pass, self.parameters, (prompts_P, responses_PG, masks_PG), steps, mask_BT)

    def _ahead(self, work: Work, whole: Sequence[int]) -> Forward:
        logp_BT = torch.zeros(work.mask_BT.shape, device=work.mask_BT.device)
        return Forward(logp_BT, work, frozenset(whole), self.parameters.versions())

    def log_score_norms(self, prompts_P: Prompts, responses_PG: Responses, masks_PG: Masks = None) -> Tensor:
        """log ‖∇_θ log π(y|x)‖² of each response's sampled tokens, float64, −inf for one without any: log_norms_B.

        One forward and one backward pass a response, prompts not shared. The parameters' `.grad` is left alone.
        """
        work = self._work(prompts_P, responses_PG, masks_PG)
        _, responses_PG, _ = work.texts
        group_size = len(responses_PG[0])
        lengths_B = [len(response) for responses_G in responses_PG for response in responses_G]
        squares_B = torch.zeros(len(lengths_B), dtype=torch.float64)
        for row in self.parameters.share(lengths_B):
            group, sample = divmod(row, group_size)
            if not lengths_B[row]:
                continue
            micro_batch = MicroBatch((Piece(group, (sample,)),), len(prompts_P[group]) + len(responses_PG[group][sample]))
            with self.active_pass.active():
                squares_B[row] = self.parameters.squared_gradient(work.body(micro_batch)).cpu()
        self.ranks.add([squares_B])
        return squares_B.log().to(self.model.device)

    def _run(self, work: Work, *, entropies: bool) -> Scores:
        """Every micro-batch without a graph, gathered into [B, T] tensors."""
        logp_BT = torch.zeros(work.mask_BT.shape, device=work.mask_BT.device)
        entropies_BT = torch.zeros_like(logp_BT) if entropies else None
        for micro_batch in work.plan:
            with self.active_pass.active():
                scored = work.run(micro_batch, graph=False, entropies=entropies)
            logp_BT[scored.rows_R, scored.columns_R] = scored.logp_R
            if entropies_BT is not None and scored.entropies_R is not None:
                entropies_BT[scored.rows_R, scored.columns_R] = scored.entropies_R
        self.ranks.add([logp_BT] if entropies_BT is None else [logp_BT, entropies_BT])
        return Scores(logp_BT, work.mask_BT, entropies_BT)


def _check(prompts_P: Prompts, responses_PG: Responses) -> None:
    sizes = sorted({len(responses_G) for responses_G in responses_PG})
    if len(prompts_P) != len(responses_PG) or len(sizes) != 1:
        found = f"{len(prompts_P)} prompts, {len(responses_PG)} groups of {sizes} responses"
        raise UsageError(f"{found}: each prompt needs one group, and groups have one size.")
    for group, prompt in enumerate(prompts_P):
        if not prompt:
            raise UsageError(f"prompt {group} is empty: a response needs at least one token before it.")


def _sampled_lengths(responses_PG: Responses, masks_PG: Masks) -> list[int]:
    if masks_PG is None:
        return [len(response) for responses_G in responses_PG for response in responses_G]
    responses = (response for responses_G in responses_PG for response in responses_G)
    masks = (mask for masks_G in masks_PG for mask in masks_G)
    return [len(response) if mask is None else sum(mask) for response, mask in zip(responses, masks, strict=True)]


def sampled_mask(responses_PG: Responses, masks_PG: Masks, device: torch.device) -> Tensor:
    """True at the sampled tokens of each response: mask_BT."""
    lengths_B = torch.tensor(_sampled_lengths(responses_PG, masks_PG), device=device)
    longest = max(int(lengths_B.max()), 1)
    return torch.arange(longest, device=device) < lengths_B[:, None]
