"""What the rule of a run makes of every token of stored responses, under the newest policy."""

from collections.abc import Sequence
from pathlib import Path

from gmc.comparison.measure import NOT_MEASURED, Measurer
from gmc.comparison.stored import StoredBatch
from gmc.errors import UsageError
from gmc.estimators.base import Estimator
from gmc.estimators.registry import build_estimator
from gmc.gradients.rule_calls import RuleCalls
from gmc.gradients.rule_gradient import token_gradient
from gmc.models import LanguageModel
from gmc.scoring.scorer import Scorer
from gmc.store.policies import read_policy_info
from gmc.store.run_directory import RunDirectory
from gmc.store.saved_settings import read_run_settings
from gmc.store.shards.groups import expanded, sampled_length
from gmc.store.shards.reader import read_shard
from gmc.store.shards.rollout import Rollout
from gmc.store.shards.select import Seen


def token_weights(seen: Sequence[Seen], run: RunDirectory, model: LanguageModel) -> list[list[float]]:
    """∂ objective / ∂ log π of each token, before any normalizer: weight times advantage for a rule of weights. 0 is left out.

    model: the newest published policy. The groups of these responses are one batch. Raises `UsageError` for a run that
    has not trained, or rollouts of later versions than the policy; what the rule raises; `DataError` for shards that lack a
    column it needs.
    """
    rule = _rule(run)
    version = read_policy_info(Path(model.source)).version
    paths = sorted({one.path for one in seen})
    rows = {path: read_shard(path).rollouts for path in paths}
    keys = sorted({(one.path, one.row.group) for one in seen})
    groups = [[row for row in rows[path] if row.group == group] for path, group in keys]
    latest = max(group[0].policy_version for group in groups)
    if latest > version:
        raise UsageError(f"{run.path}: rollouts of version {latest} are newer than the newest published policy, {version}")
    metadata = seen[0].metadata
    kind = "trainer" if "trainer" in metadata.logprob_kinds else "engine"
    scorer = Scorer(model, temperature=float(metadata.sampling.get("temperature", "1")))
    batch = Measurer(scorer, StoredBatch(groups, metadata, version, kind, paths)).batch(rule)
    gradient_BT = token_gradient(RuleCalls(rule, version, NOT_MEASURED), batch).gradient_BT
    size = len(groups[0])
    return [
        _of_row(one.row, gradient_BT[keys.index((one.path, one.row.group)) * size + one.row.sample].tolist()) for one in seen
    ]


def _of_row(row: Rollout, values_T: Sequence[float]) -> list[float]:
    return expanded(row, values_T[: sampled_length(row)])


def _rule(run: RunDirectory) -> Estimator:
    path = run.settings("train")
    if not path.is_file():
        raise UsageError(f"{run.path}: has not trained, so no rule gives its tokens weights; color by logprob")
    settings = dict(read_run_settings(path)["estimator"])
    return build_estimator(settings.pop("name"), settings)
