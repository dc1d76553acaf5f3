"""What an export would write, file by file, before anything is written."""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gmc.errors import UsageError
from gmc.export.card import CardFacts, model_card, settings_toml
from gmc.export.choice import Chosen, choose_policy
from gmc.export.license import license_of
from gmc.export.public import is_local, public_name, public_settings
from gmc.export.snippet import snippet
from gmc.loading.adapter import adapter_base, is_adapter
from gmc.loading.folder import ADAPTER
from gmc.problems.templates import get_template
from gmc.store.files import READY, checksum, write_json
from gmc.store.generation import CONFIG_FILE, GENERATION_FILE, as_in_training, end_ids_of, table
from gmc.store.logs import read_metrics
from gmc.store.policies import INFO_FILE, PolicyInfo, intact_policy, require_readable
from gmc.store.run_directory import RunDirectory
from gmc.store.saved_settings import naming_saved, read_run_settings, read_versions

CARD_FILE, SETTINGS_FILE = "README.md", "gmc_settings.toml"
HERE = "."


@dataclass(frozen=True)
class ExportFile:
    """One file of an export: from where, or its contents."""

    name: str
    content: Path | bytes

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size


@dataclass(frozen=True)
class Plan:
    """An export to be made. files: all but merged weights; rollout: the run's settings of rollouts; merge: whether an adapter
    goes into the weights under it; notes: what whoever exports should know, a line each."""

    chosen: Chosen
    card: str
    files: tuple[ExportFile, ...]
    rollout: Mapping[str, Any]
    merge: bool
    notes: tuple[str, ...]

    @property
    def _info(self) -> PolicyInfo:
        (written,) = (file.content for file in self.files if file.name == INFO_FILE)
        assert isinstance(written, bytes)
        return PolicyInfo(**json.loads(written))

    @contextlib.contextmanager
    def contents(self) -> Iterator[tuple[ExportFile, ...]]:
        """Every file, those of merged weights included, which exist as long as the context."""
        if not self.merge:
            yield self.files
            return
        with tempfile.TemporaryDirectory() as folder:
            _save_merged(self.chosen.path, Path(folder), self._info, self.rollout)
            made = tuple(ExportFile(path.name, path) for path in sorted(Path(folder).iterdir()))
            own = {file.name for file in made}
            yield (*made, *(file for file in self.files if file.name not in own))


def plan_export(
    run: RunDirectory,
    *,
    policy: str = "latest",
    repository: str = "",
    base: str = "",
    license_id: str = "",
    merge: bool = False,
) -> Plan:
    """What an export of a policy would write.

    policy: "latest", "best" or a version; repository: its name on the hub, "" for a folder; base: what others call the starting
    model, where the run knows it by a folder; license_id: an SPDX id, "" for that of the starting model; merge: put an adapter
    into the weights under it. Raises `UsageError` where there is no such policy, or a merge without an adapter.
    """
    chosen = choose_policy(run, policy)
    info, adapter = intact_policy(chosen.path), is_adapter(chosen.path)
    if merge and not adapter:
        raise UsageError(f"--merge: {chosen.path} is a whole model already; leave --merge out")
    own = read_run_settings(run.settings("train"))
    require_readable(chosen.path, info, bool(own["model"].get("trust_remote_code")))
    with naming_saved(run.settings("train")):
        settings, template = public_settings(own), get_template(own["problems"]["template"])
    start = base or info.base_model
    under = (base or adapter_base(chosen.path)) if adapter else ""
    license_id = license_id or license_of(info.base_model)
    facts = CardFacts(
        title=repository.partition("/")[2] or f"{run.path.resolve().name}, policy version {info.version}",
        info=info,
        chosen=chosen,
        settings=settings,
        versions=read_versions(run.settings("train")),
        metrics=read_metrics(run.metrics)[: info.version],
        template=template,
        base=start,
        license=license_id,
        weights=_weights(chosen.path, adapter, merge),
        adapter=adapter and not merge,
        code=_snippet(settings, repository),
        private=(own["problems"]["source"], own["model"]["source"], info.base_model),
    )
    card = model_card(facts)
    info = replace(info, base_model=public_name(start))
    made = {CARD_FILE: card, SETTINGS_FILE: settings_toml(settings), INFO_FILE: _json(asdict(info))}
    if not adapter:
        made[GENERATION_FILE] = _json(_generation(chosen.path, own))
    files = tuple(_files(chosen.path, made, "" if merge else under))
    return Plan(chosen, card, files, settings["rollout"], merge, tuple(_notes(facts, under)))


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def _generation(path: Path, own: Mapping[str, Any]) -> dict[str, Any]:
    """The generation config of a whole model, with every id that ended a response in training."""
    from gmc.models import load_tokenizer

    there = table(path / GENERATION_FILE) if (path / GENERATION_FILE).is_file() else {}
    tokenizer = load_tokenizer(path, trust_remote_code=bool(own["model"].get("trust_remote_code")))
    named = (there.get("eos_token_id"), table(path / CONFIG_FILE).get("eos_token_id"), tokenizer.eos_token_id)
    return as_in_training(there, end_ids_of(*named), own["rollout"])


def _snippet(settings: dict[str, Any], repository: str) -> str:
    remark = "" if repository else "this folder"
    rollout, trust = settings["rollout"], bool(settings["model"].get("trust_remote_code"))
    return snippet(
        get_template(settings["problems"]["template"]),
        name=repository or HERE,
        remark=remark,
        max_tokens=rollout["max_tokens"],
        temperature=rollout["temperature"],
        trust_remote_code=trust,
    )


def _weights(path: Path, adapter: bool, merge: bool) -> str:
    if merge:
        return "an adapter merged into its model, float32"
    if adapter:
        return "the adapter alone, float32"
    stored = table(path / CONFIG_FILE)
    return str(stored.get("dtype") or stored.get("torch_dtype") or "float32")


def _files(path: Path, made: Mapping[str, str], under: str) -> Iterator[ExportFile]:
    """Every file but merged weights. made: in place of the policy's own; under: the model that an adapter belongs to, "" where
    none is written."""
    if under:
        made = {**made, ADAPTER: _json({**table(path / ADAPTER), "base_model_name_or_path": under})}
    merged = is_adapter(path) and not under
    for name, text in made.items():
        yield ExportFile(name, text.encode())
    for source in sorted(path.rglob("*")):
        name = source.relative_to(path).as_posix()
        skipped = name in made or name == READY or (merged and name.startswith("adapter_"))
        if source.is_file() and not skipped:
            yield ExportFile(name, source)


def _notes(facts: CardFacts, under: str) -> Iterator[str]:
    if not facts.chosen.results:
        yield "no evaluation of this policy is in the run, so its card has no scores; gmc eval --base first makes some"
    if not facts.license:
        yield "the license of the starting model is not known here; --license ID puts it on the card"
    if facts.adapter and is_local(under):
        yield (
            f"the adapter belongs to {under}, which others do not have; --base NAME says what they call it, --merge exports "
            "the whole model"
        )
    elif is_local(facts.base):
        yield f"the starting model is known as {public_name(facts.base)} only; --base NAME says what others call it"


def _save_merged(path: Path, folder: Path, info: PolicyInfo, rollout: Mapping[str, Any]) -> None:
    """The model of an adapter's folder with the adapter in its weights, as a Hugging Face folder whose record is of these."""
    from gmc.models import load_model, weights_hash
    from gmc.store.policies import save_network

    model = load_model(path)
    if model.quantized:
        raise UsageError(f"--merge: the model under {path} is quantized ({model.quantized}); export the adapter alone")
    model.network, model.adapter = model.adapter.merge_and_unload(), None
    save_network(model, folder)
    model.tokenizer.save_pretrained(folder)
    there = folder / GENERATION_FILE
    there.write_text(_json(as_in_training(table(there) if there.is_file() else {}, model.end_token_ids, rollout)), "utf-8")
    files = {file.name: checksum(file) for file in sorted(folder.glob("*.safetensors"))}
    write_json(folder / INFO_FILE, asdict(replace(info, weights_hash=weights_hash(model.weights()), files=files)))
