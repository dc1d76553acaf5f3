"""`gmc estimators compare`: each rule's gradient on stored rollouts, without training."""

from pathlib import Path
from typing import Annotated

import typer

from gmc.cli.options import JsonOption
from gmc.estimators.normalizer import Normalizer

_NORMALIZERS = f"Loss normalizer of all rules: {', '.join(Normalizer)}"


def compare(
    shard_dir: Annotated[Path, typer.Argument(help="A run, or a folder of shards.", show_default=False, metavar="RUN")],
    model: Annotated[str, typer.Option("--model", help="The policy: a folder such as policies/v000100, or a hub id.")],
    estimator: Annotated[
        list[str] | None,
        typer.Option("--estimator", help="Only this rule. May be repeated. (default: all installed)", show_default=False),
    ] = None,
    shards: Annotated[int, typer.Option("--shards", min=1, help="The newest shard files to use, as one batch.")] = 8,
    fresh: Annotated[
        int,
        typer.Option("--fresh", min=0, help="Sample G fresh responses a prompt this often, for the on-policy gradient."),
    ] = 0,
    normalizer: Annotated[
        Normalizer | None,
        typer.Option("--normalizer", metavar="NAME", help=f"{_NORMALIZERS}. (default: each rule's own)", show_default=False),
    ] = None,
    logprobs: Annotated[
        str | None,
        typer.Option("--logprobs", help="Behavior log-probs: trainer or engine. (default: as stored)", show_default=False),
    ] = None,
    policy_version: Annotated[
        int | None,
        typer.Option("--policy-version", help="Version of the policy. (default: what its folder says)", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the fresh responses.")] = 0,
    json: JsonOption = False,
) -> None:
    """Compare what each rule makes of stored rollouts under a policy, without training.

    The gradient's norm, its cosine to the unbiased gradient (and, with --fresh, to the on-policy one), and the weights.
    """
    from gmc.errors import UsageError
    from gmc.estimators.names import require_estimators
    from gmc.loading.named import require_model

    require_estimators(estimator or ())
    require_model(model)
    if not shard_dir.is_dir():
        raise UsageError(f"{shard_dir}: no such folder; name a run or a folder of rollouts")
    import torch

    from gmc.cli.estimators_compare_view import comparison_view
    from gmc.cli.output import PlainConsole, print_json, write_line
    from gmc.cli.progress import progress_bar
    from gmc.comparison.compare import compare_rules
    from gmc.comparison.stored import load_stored
    from gmc.estimators.registry import build_estimator, list_estimators
    from gmc.models import load_model
    from gmc.scoring.scorer import Scorer
    from gmc.store.policies import INFO_FILE, read_policy_info

    if (Path(model) / INFO_FILE).is_file():
        read_policy_info(Path(model))  # damage is named before anything is loaded
    names = estimator or [found.name for found in list_estimators() if found.estimator is not None]
    rules = [build_estimator(name) for name in names]
    policy = load_model(model, device="cuda" if torch.cuda.is_available() else "cpu")
    stored = load_stored(shard_dir, policy, shards=shards, logprobs=logprobs, policy_version=policy_version)
    responses = sum(map(len, stored.groups))
    write_line(
        f"{len(stored.paths)} shards, {responses} responses, policy version {stored.version}, {stored.logprob_kind} log-probs"
    )
    scorer = Scorer(policy, temperature=stored.sampling.temperature)
    with progress_bar("compare", len(rules) + fresh * responses, "steps") as bar:
        comparison = compare_rules(rules, scorer, stored, normalizer=normalizer, fresh=fresh, seed=seed, advance=bar.advance)
    if json:
        print_json({"shards": [str(path) for path in stored.paths], "policy_version": stored.version, **comparison.record()})
    else:
        PlainConsole(highlight=False).print(comparison_view(comparison))
