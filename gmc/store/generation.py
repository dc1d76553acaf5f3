"""How an exported policy samples where nobody says anything else: as it was trained. transformers and vLLM read it so."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gmc.errors import DataError
from gmc.store.files import read_json

GENERATION_FILE, CONFIG_FILE = "generation_config.json", "config.json"
LENGTH = "max_new_tokens"
KEPT = ("bos_token_id", "pad_token_id", "transformers_version")


def as_in_training(own: Mapping[str, Any], end_ids: Collection[int], rollout: Mapping[str, Any]) -> dict[str, Any]:
    """A generation config with the sampling of training: temperature alone, and no response longer than training had.

    own: what the policy has, of which ids that end nothing are kept; end_ids: every token id that ends a response; rollout: the
    run's settings of rollouts. Stop strings stay out: transformers does not generate with them unless it gets a tokenizer.
    """
    ends = {"eos_token_id": sorted(end_ids)} if end_ids else {}
    return {
        **{name: own[name] for name in KEPT if own.get(name) is not None},
        **ends,
        "do_sample": True,
        "temperature": rollout["temperature"],
        "top_k": 0,
        "top_p": 1.0,
        LENGTH: rollout["max_tokens"],
    }


def trained_length(folder: Path) -> int | None:
    """The longest response of training that a folder's generation config names, None where it names none."""
    path = folder / GENERATION_FILE
    if not path.is_file():
        return None
    length = table(path).get(LENGTH)
    return length if isinstance(length, int) and not isinstance(length, bool) and length > 0 else None


def end_ids_of(*named: Any) -> set[int]:
    """Token ids from values that are one, several or none."""
    ids: set[int] = set()
    for value in named:
        ids.update(value if isinstance(value, list) else [] if value is None else [value])
    return ids


def table(path: Path) -> dict[str, Any]:
    """The JSON object in a policy's file. Raises `DataError` where it is none."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError(f"{path}: not a JSON object; publish the policy again, or export another")
    return content
