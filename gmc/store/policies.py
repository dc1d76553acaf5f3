"""Published policies: one Hugging Face folder a version that any library loads; complete when READY is there."""

import copy
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, TypeAdapter
from safetensors import safe_open

from gmc import __version__
from gmc.errors import DataError
from gmc.store.files import checksum, finish_directory, is_ready, read_json, ready_directory, set_aside, write_json
from gmc.store.records import checked
from gmc.store.run_directory import POLICY_NAME, RUN_FILE, policy_name
from gmc.store.temporary import remove, remove_leftovers

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import GenerationConfig

    from gmc.models import LanguageModel

INFO_FILE = "gmc.json"
INDEX_FILE = "model.safetensors.index.json"

CARD = """---
library_name: transformers
pipeline_tag: text-generation
---

# Policy version {version}

A policy of a training run by [gmc](https://arxiv.org/abs/2610.01896) {gmc_version}: reinforcement learning on stale rollouts.

- starting model: `{base_model}`
- run: `{run_id}`
- policy version (updates made): {version}
- weights: {dtype}, SHA-256 of their float32 values `{weights_hash}`{adapted}

`gmc export` writes this policy with a full card: rule, delay, settings, scores, prompt.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```
"""


CURE = (
    "restore the folder from a copy, or take another policy; as a model of its own, without what its run says of it, a copy "
    "without gmc.json elsewhere can be loaded."
)

ADAPTED = "\n- a LoRA adapter over the model that adapter_config.json names; loading it needs the package peft"


@dataclass(frozen=True)
class PolicyInfo:
    """What a published policy says about itself (gmc.json).

    weights_hash: SHA-256 of the weights' float32 values; tokenizer_hash: of the vocabulary, "" in policies of gmc 0.1;
    dtype: that of the weights; files: SHA-256 of each file that holds weights, empty in policies of earlier versions.
    """

    run_id: Annotated[str, Field(min_length=1)]
    version: Annotated[int, Field(ge=0)]
    weights_hash: str
    base_model: str
    gmc_version: str
    tokenizer_hash: str = ""
    dtype: str = "float32"
    files: dict[str, str] = field(default_factory=dict)

    def is_like(self, other: "PolicyInfo") -> bool:
        """Whether both tell of the same weights, however they were cut into files."""
        return replace(self, files={}) == replace(other, files={})


def publish_policy(model: "LanguageModel", directory: Path, version: int, run_id: str) -> Path:
    """Write the model as policy `version` under `directory`, atomically and durably; returns its folder.

    A version that is there already with the same run and weights is left as it is; with others it is replaced. Raises
    `GmcError` when the disk is full, in which case nothing is left.
    """
    from gmc.models import policy_hash, tokenizer_hash

    path = directory / policy_name(version)
    hashes = policy_hash(model), tokenizer_hash(model.tokenizer)
    dtype = str(model.network.dtype).removeprefix("torch.")
    info = PolicyInfo(run_id, version, hashes[0], model.source, __version__, hashes[1], dtype)
    if _holds(path, info):
        return path
    remove_leftovers(directory)
    with ready_directory(path) as folder:
        save_network(model, folder)
        files = {file.name: checksum(file) for file in sorted(folder.glob("*.safetensors"))}
        _describe(model, folder, replace(info, files=files))
    return path


def finish_shared_policy(
    model: "LanguageModel",
    folder: Path,
    path: Path,
    version: int,
    run_id: str,
    *,
    dtype: "torch.dtype",
    files: Mapping[str, str],
    digests: Mapping[str, str],
) -> None:
    """Make the policy `path` of a temporary folder in which several ranks have written the weights.

    dtype: of what they wrote; files: in which file each tensor is; digests: `checksum` of each file. Errors as for
    `publish_policy`.
    """
    from gmc.models import tokenizer_hash, weights_hash

    hashes = weights_hash(StoredTensors(folder, files)), tokenizer_hash(model.tokenizer)
    info = PolicyInfo(run_id, version, hashes[0], model.source, __version__, hashes[1], str(dtype).removeprefix("torch."))
    if _holds(path, info):
        remove(folder)
        return
    remove_leftovers(path.parent)
    config = copy.deepcopy(model.network.config)
    config.dtype, config.architectures = dtype, [type(model.network).__name__]
    config.save_pretrained(folder)
    if (own := model.network.generation_config) is not None:
        (own if _is_valid(own) else _ids_alone(own)).save_pretrained(folder)
    size = sum((folder / file).stat().st_size for file in set(files.values()))
    write_json(folder / INDEX_FILE, {"metadata": {"total_size": size}, "weight_map": dict(files)})
    _describe(model, folder, replace(info, files=dict(digests)))
    finish_directory(folder, path)


class StoredTensors(Mapping[str, "Tensor"]):
    """Tensors in safetensors files, read one at a time. files: in which file of `folder` each is."""

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        self._folder, self._files = folder, files

    def __getitem__(self, name: str) -> "Tensor":
        with safe_open(self._folder / self._files[name], framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _describe(model: "LanguageModel", folder: Path, info: PolicyInfo) -> None:
    """Write tokenizer, card and record beside the weights."""
    model.tokenizer.save_pretrained(folder)
    adapted = "" if model.adapter is None else ADAPTED
    (folder / "README.md").write_text(CARD.format(**asdict(info), adapted=adapted), "utf-8")
    write_json(folder / INFO_FILE, asdict(info))


def save_network(model: "LanguageModel", folder: Path) -> None:
    """`save_pretrained` without its progress bar, and for models whose own generation_config it refuses to save.

    Some models on the hub set sampling values without sampling, which loads but does not save; then only the token ids of
    the generation config are kept. The live network is left as it was.
    """
    from transformers.utils import logging

    network, own = model.network, model.network.generation_config
    showed_progress = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        if own is not None and not _is_valid(own):
            network.generation_config = _ids_alone(own)
        if model.adapter is None:
            network.save_pretrained(folder)
        else:
            model.adapter.save_pretrained(folder, save_embedding_layers=False)
    finally:
        network.generation_config = own
        if showed_progress:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _ids_alone(config: "GenerationConfig") -> "GenerationConfig":
    ids = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return type(config)(**ids)


def _is_valid(config: "GenerationConfig") -> bool:
    try:
        config.validate(strict=True)
    except ValueError:
        return False
    return True


def list_policies(directory: Path) -> list[tuple[int, Path]]:
    """Version and folder of every complete policy, oldest first. Half-written folders are left out."""
    if not directory.is_dir():
        return []
    matches = [(POLICY_NAME.fullmatch(path.name), path) for path in directory.iterdir()]
    return sorted((int(match[1]), path) for match, path in matches if match and is_ready(path))


def newest_policy(directory: Path) -> Path | None:
    """The folder of the complete policy with the highest version, or None."""
    newest = newest_version(directory)
    return newest[1] if newest else None


def newest_version(directory: Path) -> tuple[int, Path] | None:
    """Version and folder of the complete policy with the highest version, or None. Looks into no older one: for polls."""
    names = os.listdir(directory) if directory.is_dir() else []
    versions = sorted(((int(match[1]), name) for name in names if (match := POLICY_NAME.fullmatch(name))), reverse=True)
    return next(((version, directory / name) for version, name in versions if is_ready(directory / name)), None)


def _holds(path: Path, info: PolicyInfo) -> bool:
    """Whether this very policy is published there. A damaged record is no reason to stop: the policy is published again."""
    try:
        return is_ready(path) and read_policy_info(path).is_like(info)
    except DataError:
        return False


def read_policy_info(path: Path) -> PolicyInfo:
    """The record in a policy folder. Raises `DataError` naming the file when it is missing or damaged."""
    return checked(TypeAdapter(PolicyInfo), read_json(path / INFO_FILE, CURE), path / INFO_FILE, CURE)


def intact_policy(path: Path) -> PolicyInfo:
    """The record in a policy folder, whose files of weights are those that were published; reads them once.

    Raises `DataError` naming what is missing, damaged or changed. A policy of an earlier version, whose record names no files,
    is only looked at for empty ones.
    """
    info = read_policy_info(path)
    found = {file.name for file in path.glob("*.safetensors")}
    if not found or (info.files and found != info.files.keys()):
        raise DataError(f"{path}: its files of weights are {sorted(found)}, its record names {sorted(info.files)}; {CURE}")
    for name in sorted(found):
        if (path / name).stat().st_size == 0 or (info.files and checksum(path / name) != info.files[name]):
            raise DataError(f"{path / name}: is not the file that was published: {INFO_FILE} names another SHA-256; {CURE}")
    return info


def require_readable(path: Path, info: PolicyInfo, trust_remote_code: bool) -> None:
    """Raise `DataError` for a policy whose config or tokenizer cannot be read, or whose tokenizer is not the one it names."""
    from transformers import AutoConfig

    from gmc.loading.adapter import adapter_base, is_adapter
    from gmc.loading.refusals import refusing
    from gmc.models import load_tokenizer, tokenizer_hash

    if is_adapter(path):
        adapter_base(path)
    else:
        with refusing(str(path), "model", trust_remote_code):
            AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
    with refusing(str(path), "tokenizer", trust_remote_code):
        found = tokenizer_hash(load_tokenizer(path, trust_remote_code=trust_remote_code))
    if info.tokenizer_hash and found != info.tokenizer_hash:
        raise DataError(
            f"{path}: the hash of its tokenizer is {found[:12]}, its record {INFO_FILE} says {info.tokenizer_hash[:12]}; {CURE}"
        )


def belongs_to_run(path: Path) -> bool:
    """Whether a folder is where a run publishes its policies, and so has a record or has lost it."""
    whole = path.resolve()
    return POLICY_NAME.fullmatch(whole.name) is not None and (whole.parent.parent / RUN_FILE).is_file()


def set_aside_policies(directory: Path, after_version: int) -> list[Path]:
    """Move the policies above `after_version` to a new folder `aside-<n>`; returns their new paths.

    They come from updates that a resumed run makes again, so nobody may take them for its newest policy.
    """
    later = [path for version, path in list_policies(directory) if version > after_version]
    if not later:
        return []
    return set_aside(later)
