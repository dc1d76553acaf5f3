"""Rollouts of anybody's sampler as shards: what `gmc shards import` does."""

import logging
import math
import os
import reprlib
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmc import __version__
from gmc.config.settings import LEAST_TEMPERATURE
from gmc.errors import DataError, UsageError
from gmc.generation.frames import Frame, numbers, read_frame
from gmc.models import LanguageModel, load_model, tokenizer_hash, weights_hash
from gmc.scoring.scorer import Scorer
from gmc.store.files import fsync_directory
from gmc.store.run_directory import rollout_name
from gmc.store.shards.groups import expanded, in_groups, sampled_length, token_ids
from gmc.store.shards.rollout import FROM_FILE, LARGEST_REWARD, UNKNOWN_VERSIONS, Rollout, ShardMetadata
from gmc.store.shards.writer import write_shard
from gmc.store.temporary import temporary_name

if TYPE_CHECKING:
    import pandas

log = logging.getLogger(__name__)

RUN_ID = "imported"
ENGINE = "imported"
LARGEST_FLOAT = 3.4028234e38
"""Shards keep rewards and log-probs in 32 bits."""
LARGEST_VERSION = 2**63 - 1
TEXTS = ("prompt", "response", "group", "status", "answer", "prediction")


@dataclass(frozen=True)
class ImportOptions:
    """What the table does not say.

    model: whose tokenizer it is, and with `score` the policy that sampled; policy_version: of rows without one, None where it
    is not known; temperature: at which was sampled; prompts: groups a file; columns: the table's own names; score: compute the
    log-probs by the model.
    """

    model: str = "embedded"
    policy_version: int | None = None
    temperature: float = 1.0
    prompts: int = 8
    columns: tuple[tuple[str, str], ...] = ()
    score: bool = False

    def __post_init__(self) -> None:
        if not LEAST_TEMPERATURE <= self.temperature <= 1000:
            raise UsageError(
                f"--temperature {self.temperature:g}: give the number from {LEAST_TEMPERATURE:g} to 1000 at which the rollouts "
                "were sampled: their log-probs are those of that temperature"
            )
        if self.prompts < 1:
            raise UsageError(f"--prompts {self.prompts}: at least one group a file")


@dataclass(frozen=True)
class ImportSummary:
    """What was written: files, groups, responses, size of a group, and the lowest and highest policy version, None where the
    table does not say it."""

    folder: Path
    files: int
    groups: int
    responses: int
    group_size: int
    first_version: int | None
    last_version: int | None

    def record(self) -> dict[str, object]:
        """As one JSON object."""
        return {**vars(self), "folder": str(self.folder)}


def import_rollouts(
    source: "Path | pandas.DataFrame | Frame",
    out: Path,
    options: ImportOptions,
    advance: Callable[[int], None] = lambda rows: None,
) -> ImportSummary:
    """Write the rollouts of a table into `out`/rollouts, groups of one version to a file. advance: told of rows that are read,
    and with `options.score` again of those that are scored.

    Raises `DataError` naming row and column for values that are no rollout and for groups of several sizes, prompts or
    versions, `UsageError` for a table that lacks log-probs, or a folder that holds rollouts already. Nothing is
    written then.
    """
    folder = out / "rollouts"
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder}: holds something already, and imports are never mixed; choose another --out")
    frame = source if isinstance(source, Frame) else read_frame(source, dict(options.columns))
    _require_what_ratios_need(frame, options)
    model = load_model(options.model)
    rows = []
    for place, values in frame.rows:
        rows.append(_row(frame, place, values, model, options))
        advance(1)
    groups = _groups(frame, rows)
    size = len(groups[0])
    metadata = _metadata(model, options, size, frame)
    batches = _batches(groups, options.prompts)
    versions = [group[0].policy_version for group in groups]
    if options.score and min(versions) != max(versions):
        raise UsageError(
            f"{frame.origin}: rows of versions {min(versions)} to {max(versions)}, and --score takes --model for what sampled "
            "all of them; import one version at a time"
        )
    if options.score:
        _score(batches, model, options.temperature, advance)
    _write(folder, batches, metadata)
    found = (min(versions), max(versions)) if _knows_versions(frame, options) else (None, None)
    return ImportSummary(folder, len(batches), len(groups), len(rows), size, *found)


def _knows_versions(frame: Frame, options: ImportOptions) -> bool:
    return frame.has("policy_version") or options.policy_version is not None


def _write(folder: Path, batches: Sequence[Sequence[Rollout]], metadata: ShardMetadata) -> None:
    """All files or none: they are written under a temporary name of the folder first."""
    unfinished = temporary_name(folder)
    try:
        for number, batch in enumerate(batches):
            write_shard(unfinished / rollout_name(number, batch[0].policy_version), batch, metadata)
        folder.mkdir(exist_ok=True)
        os.replace(unfinished, folder)
        fsync_directory(folder.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _require_what_ratios_need(frame: Frame, options: ImportOptions) -> None:
    if not frame.has("logprobs") and not options.score:
        raise UsageError(
            f"{frame.origin}: no log-probs of the sampled tokens (a column logprobs, one list a row), and training compares "
            "with them; bring them, or let --score compute them, if --model is the policy that sampled"
        )


def _row(frame: Frame, place: str, values: Mapping[str, Any], model: LanguageModel, options: ImportOptions) -> Rollout:
    _require_text(frame, place, values)
    prompt_ids, prompt = _tokens(frame, place, values, "prompt", model, special=True)
    response_ids, response = _tokens(frame, place, values, "response", model, special=False)
    _require_room(frame, place, len(prompt_ids), len(response_ids), model)
    logprobs = _logprobs(frame, place, values, len(response_ids)) if frame.has("logprobs") and not options.score else None
    version = _version(frame, place, values, options)
    reason = frame.value(values, "finish_reason") or "stop"
    if reason not in ("stop", "length"):
        raise frame.fail(place, "finish_reason", f"{reason!r} is not 'stop' or 'length'")
    group = frame.value(values, "group")
    return Rollout(
        run_id=RUN_ID,
        problem_id=str(group) if group is not None else "",
        batch=0,
        group=0,
        sample=0,
        policy_version=version,
        prompt_token_ids=prompt_ids,
        response_token_ids=response_ids,
        finish_reason=reason,
        reward=_reward(frame, place, values),
        status=str(frame.value(values, "status") or "imported"),
        answer=str(frame.value(values, "answer") or ""),
        prediction=frame.value(values, "prediction"),
        prompt=prompt,
        response=response,
        engine_logprobs=logprobs,
        note=place,
        response_mask=_mask(frame, place, values, len(response_ids)),
    )


def _require_room(frame: Frame, place: str, prompt: int, response: int, model: LanguageModel) -> None:
    """Refuse a row that the model could not have sampled, and cannot be trained on."""
    most = model.context_tokens
    if most is not None and prompt + response > most:
        raise frame.fail(
            place,
            "response",
            f"{prompt} tokens of prompt and {response} of response are more than the {most} of model {model.source}; leave "
            "the row out, or name the model that sampled it (--model)",
        )


def _require_text(frame: Frame, place: str, values: Mapping[str, Any]) -> None:
    """Refuse text that no file can hold: JSON may write half of a character, a lone surrogate."""
    for name in TEXTS:
        try:
            str(frame.value(values, name)).encode()
        except UnicodeEncodeError as error:
            half = f"{error.object[error.start]!a} at character {error.start} is half of a character (a lone surrogate)"
            raise frame.fail(place, name, f"{half}, which is no text; replace it") from error


def _version(frame: Frame, place: str, values: Mapping[str, Any], options: ImportOptions) -> int:
    version = frame.value(values, "policy_version") if frame.has("policy_version") else options.policy_version or 0
    if not isinstance(version, int | float) or not 0 <= version <= LARGEST_VERSION or version != int(version):
        raise frame.fail(
            place, "policy_version", f"{reprlib.repr(version)} is no whole number of at least 0 and at most 2**63 - 1"
        )
    return min(int(version), LARGEST_VERSION)  # as a float the largest reads as 2**63


def _mask(frame: Frame, place: str, values: Mapping[str, Any], tokens: int) -> list[bool] | None:
    """Which response tokens the model sampled, None when it sampled all."""
    given = frame.value(values, "response_mask")
    if given is None:
        return None
    found = numbers([int(one) if isinstance(one, bool) else one for one in given] if isinstance(given, list) else given)
    if found is None or len(found) != tokens or any(one not in (0, 1) for one in found):
        raise frame.fail(place, "response_mask", f"no list of {tokens} times true or false (1 or 0), one a response token")
    return None if all(found) else [bool(one) for one in found]


def _reward(frame: Frame, place: str, values: Mapping[str, Any]) -> float:
    reward = frame.value(values, "reward")
    try:
        number = float(reward)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= LARGEST_REWARD:
        found = "nan or nothing" if reward is None else reprlib.repr(reward)
        raise frame.fail(place, "reward", f"{found} is no finite number within ±{LARGEST_REWARD:g}")
    return number


def _logprobs(frame: Frame, place: str, values: Mapping[str, Any], tokens: int) -> list[float]:
    logprobs = numbers(frame.value(values, "logprobs"))
    if logprobs is None or len(logprobs) != tokens:
        count = "no list of numbers" if logprobs is None else f"{len(logprobs)} values"
        raise frame.fail(place, "logprobs", f"{count} for {tokens} response tokens")
    if not all(-LARGEST_FLOAT <= one <= 1e-6 for one in logprobs):
        raise frame.fail(place, "logprobs", "a log-probability is finite (in 32 bits) and at most 0")
    return [min(0.0, float(one)) for one in logprobs]  # rounding may leave a sure token a hair above 0


def _tokens(
    frame: Frame, place: str, values: Mapping[str, Any], name: str, model: LanguageModel, *, special: bool
) -> tuple[list[int], str]:
    """Ids and text of a prompt or a response: ids as they are, text by the tokenizer. Log-probs belong to ids."""
    found = frame.value(values, f"{name}_token_ids")
    text = frame.value(values, name)
    if found is not None:
        ids = numbers(found)
        if ids is None or not all(isinstance(one, int) and 0 <= one < model.vocabulary_size for one in ids):
            raise frame.fail(place, f"{name}_token_ids", f"no list of token ids below {model.vocabulary_size}")
        return ids, text if isinstance(text, str) else str(model.tokenizer.decode(ids))
    if not isinstance(text, str):
        raise frame.fail(place, name, f"{type(text).__name__}, not text; bring {name}_token_ids")
    return [int(one) for one in model.tokenizer(text, add_special_tokens=special)["input_ids"]], text


def _groups(frame: Frame, rows: Sequence[Rollout]) -> list[list[Rollout]]:
    """Rows of one group together, in the order of first appearance; groups are known by their column, else by their prompt."""
    places = {id(row): place for row, (place, _) in zip(rows, frame.rows, strict=True)}
    by_key: dict[Any, list[Rollout]] = {}
    for row in rows:
        key = (row.problem_id,) if frame.has("group") else (tuple(row.prompt_token_ids), row.policy_version)
        by_key.setdefault(key, []).append(row)
    sizes = Counter(map(len, by_key.values()))
    usual = sizes.most_common(1)[0][0]
    groups = []
    for number, group in enumerate(by_key.values()):
        first, place = group[0], places[id(group[0])]
        for row in group[1:]:
            if row.policy_version != first.policy_version:
                what = f"{row.policy_version}, and its group, which begins in {place}, has {first.policy_version}: one version"
                raise frame.fail(places[id(row)], "policy_version", f"{what} a group")
            if row.prompt_token_ids != first.prompt_token_ids:
                raise frame.fail(places[id(row)], "prompt", f"not the prompt of its group, which begins in {place}")
        if len(group) != usual:
            raise frame.fail(place, "group", f"its group has {len(group)} responses, most have {usual}; leave it out")
        groups.append([replace(row, problem_id=row.problem_id or f"prompt-{number}") for row in group])
    if usual < 2:
        raise DataError(f"{frame.origin}: every group has one response, and an advantage compares several to one prompt")
    return groups


def _batches(groups: Sequence[list[Rollout]], prompts: int) -> list[list[Rollout]]:
    """Launch batches of at most `prompts` groups, each of one version, by version and then in order."""
    batches: list[list[Rollout]] = []
    ordered = sorted(groups, key=lambda group: group[0].policy_version)
    for _, same in groupby(ordered, key=lambda group: group[0].policy_version):
        own = list(same)
        for start in range(0, len(own), prompts):
            number = len(batches)
            batches.append(
                [
                    replace(row, batch=number, group=place, sample=sample)
                    for place, group in enumerate(own[start : start + prompts])
                    for sample, row in enumerate(group)
                ]
            )
    return batches


def _score(
    batches: Sequence[Sequence[Rollout]], model: LanguageModel, temperature: float, advance: Callable[[int], None]
) -> None:
    scorer = Scorer(model, temperature=temperature)
    for batch in batches:
        scores = scorer.score(*token_ids(in_groups(batch)))
        for index, row in enumerate(batch):
            row.trainer_logprobs = expanded(row, scores.logp_BT[index, : sampled_length(row)].tolist())
        advance(len(batch))


def _metadata(model: LanguageModel, options: ImportOptions, size: int, frame: Frame) -> ShardMetadata:
    return ShardMetadata(
        run_id=RUN_ID,
        model_id=options.model,
        weights_hash=weights_hash(model.weights()) if options.score else "",
        tokenizer_hash=tokenizer_hash(model.tokenizer),
        vocabulary_size=model.vocabulary_size,
        engine=ENGINE,
        engine_version="",
        sampling={"temperature": str(options.temperature)},
        template_id="imported",
        logprob_kinds=("trainer",) if options.score else ("engine",),
        seed=0,
        group_size=size,
        gmc_version=__version__,
        extra={FROM_FILE: frame.origin, **({} if _knows_versions(frame, options) else {UNKNOWN_VERSIONS: "0 in every row"})},
    )
