"""lm-eval loads a published policy and, asked the same prompt, gives the greedy answers that gmc eval gives."""

import json
from pathlib import Path

import pytest

from gmc.engines.transformers import TransformersEngine
from gmc.evaluation.runner import evaluate
from gmc.evaluation.spec import EvalSpec, Task
from gmc.evaluation.subjects import model_candidate
from gmc.models import load_model
from gmc.problems.benchmarks import BENCHMARKS
from gmc.problems.load import load_problems
from gmc.rewards.build import build_reward
from gmc.store.policies import publish_policy

pytestmark = pytest.mark.process

lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed")
pytest.importorskip("accelerate", reason="lm-eval is installed without its hf extra")

TASK = """
task: gmc_arithmetic
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["<|end|>"], do_sample: false, max_gen_toks: 64}}
filter_list:
  - name: boxed
    filter:
      - {{function: regex, regex_pattern: '\\\\boxed\\{{([^{{}}]*)\\}}', group_select: -1}}
      - {{function: take_first}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


def test_lm_eval_agrees_on_a_published_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = publish_policy(load_model("embedded"), tmp_path / "policies", 0, "run")
    model, candidate = load_model(folder), model_candidate(str(folder))
    problems = load_problems("arithmetic:eval", count=12)
    with build_reward(["math"]) as reward:
        ours = evaluate(
            TransformersEngine(model),
            model.tokenizer,
            Task(BENCHMARKS["arithmetic"], problems, EvalSpec("arithmetic", "arithmetic-v1", samples=0)),
            subject=candidate.subject(model, "float32"),
            reward=reward,
            directory=tmp_path / "evals",
        )
    samples = ours.samples()
    data = tmp_path / "problems.jsonl"
    data.write_text("\n".join(json.dumps({"prompt": s.prompt, "answer": s.answer}) for s in samples))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "gmc_arithmetic.yaml").write_text(TASK.format(data=data))
    theirs = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(folder), "dtype": "float32", "device": "cpu"},
        tasks=["gmc_arithmetic"],
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        batch_size=1,
        bootstrap_iters=0,
    )
    responses = [sample["resps"][0][0] for sample in theirs["samples"]["gmc_arithmetic"]]
    assert responses == [sample.response for sample in samples]
    score = theirs["results"]["gmc_arithmetic"]["exact_match,boxed"]
    assert score == pytest.approx(ours.estimates()["greedy"].value)
    assert 0 < score < 1
