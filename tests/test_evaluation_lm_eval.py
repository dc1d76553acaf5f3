"""The lm-eval example of docs/evaluation.md, executed: the same prompts, greedy responses and score as gmc eval."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from gmc.models import load_model, weights_hash
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.process

pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install 'lm-eval[hf]')")
pytest.importorskip("accelerate", reason="lm-eval is installed without its hf extra")

PAGE = (Path(__file__).parent.parent / "docs" / "evaluation.md").read_text()


def test_lm_eval_agrees_on_a_published_policy(tmp_path: Path) -> None:
    model = load_model("embedded")
    run = RunDirectory.create(
        tmp_path / "runs" / "default", model="embedded", seed=0, weights_hash=weights_hash(model.weights())
    )
    publish_policy(model, run.policies, 400, run.run_id)
    (task,) = re.findall(r'```yaml title="gmc_arithmetic.yaml"\n(.*?)```', PAGE, re.S)
    (tmp_path / "gmc_arithmetic.yaml").write_text(task)
    (commands,) = re.findall(r"```bash\n(gmc eval --n 0.*?)```", PAGE, re.S)
    ours, theirs = commands.splitlines()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    extra = {ours: ["--limit", "12"], theirs: ["--output_path", "out", "--log_samples"]}
    for command, more in extra.items():
        program, *words = shlex.split(command)
        subprocess.run([sys.executable, "-m", program, *words, *more], cwd=tmp_path, env=environment, check=True, timeout=300)
    (result,) = run.evals.glob("*.json")
    (samples,) = run.evals.glob("*.parquet")
    (scores,) = (tmp_path / "out").rglob("results_*.json")
    (logged,) = (tmp_path / "out").rglob("samples_*.jsonl")
    score = json.loads(result.read_text())["scores"]["greedy"]["value"]
    assert 0 < score < 1
    assert json.loads(scores.read_text())["results"]["gmc_arithmetic"]["exact_match,boxed"] == pytest.approx(score)
    rows = sorted(map(json.loads, logged.read_text().splitlines()), key=lambda row: row["doc_id"])
    assert [row["resps"][0][0] for row in rows] == pyarrow.parquet.read_table(samples)["response"].to_pylist()
    assert len(rows) == 12
