"""The model card of an exported policy: how it was made, how it scores, how it was asked, and a snippet that runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomli_w

from gmc import __version__
from gmc.estimators.errors import EstimatorError
from gmc.estimators.registry import load_estimator
from gmc.evaluation.report import format_estimate
from gmc.evaluation.results import Result
from gmc.export.choice import Chosen, question_of
from gmc.export.public import is_local, public_name, public_reward, public_text
from gmc.export.snippet import PLACE
from gmc.problems.templates import Template
from gmc.store.policies import PolicyInfo

SINGLE = "single"
"""The environment that answers nothing."""

UNKNOWN_LICENSE = "not known; see the starting model"


@dataclass(frozen=True)
class CardFacts:
    """What a card is made of. settings: public ones; metrics: of the updates that made the policy; weights: how they lie there,
    in words; code: the snippet; license: an SPDX id, "" where it is not known; private: names that may hold folders of this
    machine."""

    title: str
    info: PolicyInfo
    chosen: Chosen
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    metrics: Sequence[Mapping[str, Any]]
    template: Template
    base: str
    license: str
    weights: str
    adapter: bool
    code: str
    private: Sequence[str] = ()


def model_card(facts: CardFacts) -> str:
    """The card as Markdown, after the YAML that the hub reads."""
    parts = (
        _front_matter(facts),
        _introduction(facts),
        _training(facts),
        _scores(facts),
        _prompt(facts),
        _use(facts),
        _settings(facts),
    )
    return "\n\n".join(parts) + "\n"


def _front_matter(facts: CardFacts) -> str:
    lines = [f"library_name: {'peft' if facts.adapter else 'transformers'}", "pipeline_tag: text-generation"]
    if not is_local(facts.base) and "/" in facts.base:
        lines.append(f"base_model: {facts.base}")
        lines.append(f"base_model_relation: {'adapter' if facts.adapter else 'finetune'}")
    if facts.license:
        lines.append(f"license: {facts.license}")
    data = str(facts.settings["problems"]["source"]).partition(":")[0]
    if "/" in data:
        lines += ["datasets:", f"- {data}"]
    return "\n".join(["---", *lines, "tags: [gmc, reinforcement-learning]", "---"])


def _introduction(facts: CardFacts) -> str:
    kind = "A LoRA adapter" if facts.adapter else "A language model"
    return (
        f"# {facts.title}\n\n{kind} trained by reinforcement learning on stale rollouts with "
        f"[gmc](https://arxiv.org/abs/2610.01896) {facts.info.gmc_version}: policy version {facts.info.version}, "
        f"{facts.chosen.how}."
    )


def _training(facts: CardFacts) -> str:
    rows = "\n".join(f"| {name} | {_cell(text)} |" for name, text in _facts(facts))
    return f"## How it was made\n\n| | |\n|---|---|\n{rows}"


def _facts(facts: CardFacts) -> Iterator[tuple[str, str]]:
    settings, rollout = facts.settings, facts.settings["rollout"]
    yield "starting model", f"`{public_name(facts.base)}`"
    yield "license", facts.license or UNKNOWN_LICENSE
    yield "data", _data(str(settings["problems"]["source"]), str(settings["problems"].get("split", "")))
    yield "reward", " + ".join(f"`{part}`" for part in settings["reward"]["parts"])
    if _answers(settings):
        yield "environment", f"`{rollout['environment']}` answered the model within a response"
    yield "rule", _rule(settings["estimator"])
    yield "delay", f"`{settings['delay']}`{_delays(facts.metrics)}"
    if facts.chosen.version_0_share is not None:
        yield "offline share", f"{100 * facts.chosen.version_0_share:.0f} % of the learning rate on rollouts of version 0"
    yield (
        "updates",
        f"{facts.info.version}, each on {rollout['prompts']} × {rollout['group_size']} responses of at most "
        + (f"{rollout['max_tokens']} tokens, sampled at temperature {rollout['temperature']:g}"),
    )
    optimizer = settings["optimizer"]
    yield (
        "optimizer",
        (
            f"{optimizer['name']}, learning rate {optimizer['learning_rate']:g}, {optimizer['schedule']} over "
            f"{settings['train']['updates']} updates, gradient norm clipped to {optimizer['clip_norm']:g}"
        ),
    )
    yield "seed, run", f"{settings['seed']}, `{facts.info.run_id}`"
    yield "weights", f"{facts.weights}, SHA-256 of the float32 values `{facts.info.weights_hash}`"
    yield "made with", ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    yield "exported by", f"gmc {__version__}"


def _answers(settings: Mapping[str, Any]) -> bool:
    """Whether an environment answered the model: a run of gmc 0.1 knows none."""
    return str(settings["rollout"].get("environment", SINGLE)).partition("(")[0] != SINGLE


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _data(source: str, split: str) -> str:
    if source.partition(":")[0] == "arithmetic":
        return "the arithmetic that gmc generates from the seed"
    kind = "a file that is not part of this repository" if is_local(source) else "a data set of the Hugging Face hub"
    return f"`{source}`{f', split `{split}`' if split else ''}, {kind}"


def _rule(estimator: Mapping[str, Any]) -> str:
    own = ", ".join(f"{key} = {value}" for key, value in estimator.items() if key != "name")
    said = f"`{estimator['name']}`{f' ({own})' if own else ''}"
    try:
        rule = load_estimator(estimator["name"])
    except EstimatorError:  # its package is not installed here
        return said
    return f"{said}: {rule.summary}. {rule.reference}"


def _delays(metrics: Sequence[Mapping[str, Any]]) -> str:
    means = [record["delay/mean"] for record in metrics if record.get("delay/mean") is not None]
    if not means:
        return ""
    largest = max(record["delay/max"] for record in metrics if record.get("delay/max") is not None)
    return f": rollouts {sum(means) / len(means):.1f} updates old on average, {largest:g} at most"


def _scores(facts: CardFacts) -> str:
    if not facts.chosen.results:
        return "## Scores\n\nThis policy was not evaluated."
    base = {question_of(result): result for result in facts.chosen.base_results}
    rows = [row for result in facts.chosen.results for row in _score_rows(result, base.get(question_of(result)))]
    notes = [f"- {result.record['benchmark']}: {_asked(result, facts.private)}" for result in facts.chosen.results]
    table = ["| benchmark | score | starting model | this policy | n | problems |", "|---|---|---|---|---|---|", *rows]
    said = "Percent of right answers, else mean rewards; 95 % intervals over problems, which say nothing of other seeds."
    return "## Scores\n\n" + "\n".join([*table, "", said, "", *notes])


def _score_rows(result: Result, base: Result | None) -> Iterator[str]:
    before = {} if base is None else base.estimates()
    for name, value in result.estimates().items():
        share = result.rewarded.is_binary(name)
        old = format_estimate(before[name], share) if name in before else "not measured"
        new = format_estimate(value, share)
        yield f"| {_cell(str(result.record['benchmark']))} | {name} | {old} | {new} | {value.samples} | {value.problems} |"


def _asked(result: Result, private: Sequence[str]) -> str:
    spec, problems = result.record["spec"], result.record["problems"]
    notes = "".join(f"; {public_text(note, [str(problems['source']), *private])}" for note in result.record["notes"])
    return (
        f"temperature {spec['temperature']:g}, top-p {spec['top_p']:g}, at most {spec['max_tokens']} tokens, prompt "
        f"`{spec['template_id']}`, reward {' + '.join(map(public_reward, spec['reward']))}, seed {spec['seed']}, problems "
        f"`{problems['content_hash'][:12]}`{notes}"
    )


def _prompt(facts: CardFacts) -> str:
    template = facts.template
    fence = "````"
    ends = f" A response ends at {' or '.join(f'`{stop!r}`' for stop in template.stop)}." if template.stop else ""
    how = ", as a user's turn in the model's own chat template" if template.chat else ""
    return (
        f"## Prompt\n\nTemplate `{template.template_id}`{how}; other prompts were never trained.{ends}\n\n"
        f"{fence}text\n{template.write(PLACE)}\n{fence}"
    )


def _use(facts: CardFacts) -> str:
    turns = (
        "\n\nThis asks for the first turn alone; what the environment would answer is not part of it."
        if _answers(facts.settings)
        else ""
    )
    needs = "Needs `pip install transformers torch" + (" peft`.\n\n" if facts.adapter else "`.\n\n")
    return f"## Use\n\n{needs}````python\n{facts.code}````\n\n{_sampling(facts)}{turns}"


def _sampling(facts: CardFacts) -> str:
    """What those do who load the policy and say nothing of sampling."""
    rollout = facts.settings["rollout"]
    trained = f"temperature {rollout['temperature']:g}, no top-k or top-p, at most {rollout['max_tokens']} new tokens"
    if facts.adapter:
        return f"Training sampled with {trained}. An adapter takes the generation settings of the model under it: pass these."
    stop = " Stop strings cannot stand there; give them, as the code above does." if facts.template.stop else ""
    return (
        f"`generation_config.json` holds what training sampled with: {trained}, and every id that ends a response. "
        f"transformers and vLLM take it where nothing else is asked.{stop} `vllm serve` also lets no request have more tokens; "
        "`--generation-config vllm` lifts that."
    )


def _settings(facts: CardFacts) -> str:
    return (
        "## Every setting\n\nAlso in `gmc_settings.toml`; paths are cut to their last name.\n\n"
        "<details><summary>Settings</summary>\n\n"
        f"````toml\n{settings_toml(facts.settings)}````\n\n</details>"
    )


def settings_toml(settings: Mapping[str, Any]) -> str:
    """Public settings as TOML."""
    return tomli_w.dumps(dict(settings))
