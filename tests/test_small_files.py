"""Every small file with a key dropped, emptied or of another type is read right, or refused in a line that people understand.

A sample here; `python -m tests.full small_files` tries every change of every key.
"""

from pathlib import Path

import pytest
from evaluation_parts import run as evaluate
from small_files import try_all
from sweep_files import write_sweep
from test_hostile_later import make_run, make_shared, see_claims, see_run
from test_lab_report import write_results

from gmc.config.layers import lay
from gmc.evaluation.arms import group_by_arm, read_trained_run
from gmc.evaluation.compare import compare
from gmc.evaluation.curve import curve_record
from gmc.evaluation.report import comparison_table, result_tables, settings_line, warning_lines
from gmc.evaluation.results import read_result
from gmc.lab.results import read_results
from gmc.lab.sweep_file import read_sweep
from gmc.models import load_model, with_adapter
from gmc.resolving.earlier import earlier_settings
from gmc.resolving.early import resolve_asked
from gmc.store.checkpoints import load_newest
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory
from gmc.store.shards.launches import LaunchLog
from gmc.store.shards.reader import Launch

pytestmark = pytest.mark.unit

TRIES = 12
"""Changes tried here a kind."""


def make_legal(root: Path) -> dict[str, Path]:
    """One legal folder or file of each kind."""
    (root / "recipe.toml").write_text(
        'seed = 3\n[rollout]\nprompts = 4\n[train]\nstop_on = ["drift"]\n[estimator]\nname = "gmc"\n'
    )
    evaluate(root / "evals", samples=3, pass_k=(2,))
    publish_policy(with_adapter(load_model("embedded"), rank=2, alpha=4.0), root / "adapter", 3, "r")
    run = make_run(root)
    LaunchLog(RunDirectory.open(run).launches).add(0, 0, Launch([[3, 4], [5, 6]]))
    return {
        "run": run,
        "shared": make_shared(root),
        "evals": root / "evals",
        "adapter": root / "adapter",
        "sweep": write_sweep(root),
        "results": write_results(root / "results.jsonl"),
        "recipe": root / "recipe.toml",
    }


def resume(path: Path) -> None:
    resolve_asked(earlier=earlier_settings(path.parents[1], resume=True, overwrite=False, command="train"))
    group_by_arm([read_trained_run(path.parents[1])])


def look_at(path: Path) -> None:
    result = read_result(path)
    result_tables([result])
    settings_line(result)
    warning_lines(result)
    if result.record["model"]["version"] is not None:
        curve_record([result])
    comparison_table(compare(result, result))


READERS = {
    "run record": ("run.toml", see_run),
    "run settings": ("settings/train.toml", see_run),
    "run resumed": ("settings/train.toml", resume),
    "run heartbeat": ("followers/someone.json", see_run),
    "run claim": ("claims/b000004.1/record.json", see_claims),
    "run decision": ("claims/b000003.done/record.json", see_claims),
    "run metrics": ("metrics.jsonl", see_run),
    "run used": ("used.jsonl", see_run),
    "run launches": ("launches.jsonl", lambda path: (LaunchLog(path).read(), LaunchLog(path).cut(2))),
    "run policy": ("policies/v000004/gmc.json", see_run),
    "run config": ("policies/v000004/config.json", lambda path: load_model(path.parent)),
    "run generation": ("policies/v000004/generation_config.json", lambda path: load_model(path.parent)),
    "run tokenizer": ("policies/v000004/tokenizer.json", lambda path: load_model(path.parent)),
    "run wrapper": ("policies/v000004/tokenizer_config.json", lambda path: load_model(path.parent)),
    "run export": ("policies/v000004/config.json", see_run),
    "shared state": ("state.json", lambda path: load_newest(path.parents[1])),
    "evals scores": ("*.json", look_at),
    "adapter record": ("v000003/adapter_config.json", lambda path: load_model(path.parent)),
    "sweep file": ("", read_sweep),
    "results file": ("", read_results),
    "recipe file": ("", lambda path: lay(recipe=str(path))),
}


@pytest.fixture(scope="module")
def legal(tmp_path_factory):
    pytest.importorskip("peft")
    return make_legal(tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize("kind", list(READERS))
def test_a_changed_key_is_read_or_refused_in_words_of_the_file(legal, tmp_path, kind):
    part, read = READERS[kind]
    assert list(try_all(legal[kind.split()[0]], part, read, tmp_path / "scratch", tries=TRIES)) == []
