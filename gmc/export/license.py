"""The license of a starting model, where its own card says it."""

from pathlib import Path

from gmc.config.fields import EMBEDDED
from gmc.hub import use_cache_when_unreachable

OURS = "apache-2.0"


def license_of(source: str) -> str:
    """The SPDX id that the card of a model names, by folder or hub name; "" where there is no card, or it names none."""
    if source == EMBEDDED:
        return OURS
    card = Path(source) / "README.md"
    if not Path(source).is_dir():
        found = _fetched_card(source)
        if found is None:
            return ""
        card = found
    return _named_in(card)


def _fetched_card(source: str) -> Path | None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    use_cache_when_unreachable()
    try:
        return Path(hf_hub_download(source, "README.md"))
    except (HfHubHTTPError, HFValidationError, OSError):  # no such card, or out of reach: then nobody says
        return None


def _named_in(card: Path) -> str:
    from huggingface_hub import metadata_load

    try:
        head = metadata_load(card)
    except Exception:  # YAML that anybody may have written; a card that cannot be read names no license
        return ""
    named = (head or {}).get("license")
    return named if isinstance(named, str) else ""
