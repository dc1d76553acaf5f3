"""A policy out of its run: what is written, the card, its snippet, and what is refused."""

import contextlib
import io
import json
import re
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import gmc
from gmc.cli.app import app
from gmc.config.sampling import Sampling
from gmc.engines.transformers import TransformersEngine
from gmc.errors import UsageError
from gmc.evaluation.asking import resolve_request
from gmc.evaluation.request import Request
from gmc.evaluation.subjects import model_candidate
from gmc.export.license import license_of
from gmc.export.public import public_name, public_settings, public_text
from gmc.export.snippet import QUESTION, literal
from gmc.models import embedded_model_path, load_model, weights_hash, with_adapter
from gmc.problems.templates import get_template
from gmc.resolving.resolve import resolve_settings
from gmc.store.files import write_json
from gmc.store.policies import publish_policy
from gmc.store.run_directory import RunDirectory

pytestmark = pytest.mark.unit

CHAT = "{% for message in messages %}User: {{ message['content'] }}\n{% endfor %}Assistant:"


def make_run(
    path: Path, model: Any = None, *assignments: str, source: str = "embedded", versions: tuple[int, ...] = (5,)
) -> Path:
    """A trained run as far as an export looks: policies, settings, metrics."""
    model = model or load_model("embedded")
    run = RunDirectory.create(path, model=source, seed=0)
    for version in versions:
        publish_policy(model, run.policies, version, run.run_id)
    run.save_settings("train", resolve_settings(flags={}, assignments=["delay=ramp:3", *assignments]))
    lines = [{"update": n, "delay/mean": n / 4, "delay/max": float(n // 2)} for n in range(9)]
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


COUNTS = {"responses": 160, "truncated_share": 0.0, "unparseable_share": 0.0, "timeouts": 0, "crashes": 0}
COUNTS |= {"mean_response_tokens": 5.0}


def add_result(
    path: Path, version: int, value: float, *, benchmark: str = "mine", seed: int = 0, notes: Sequence[str] = ()
) -> None:
    run = RunDirectory.open(path)
    record = {
        "benchmark": benchmark,
        "model": {"label": f"v{version}", "version": version, "run_id": run.run_id}
        | {"source": "embedded", "weights_hash": "", "tokenizer_hash": ""},
        "spec": {
            "benchmark": benchmark,
            "temperature": 1.0,
            "top_p": 1.0,
            "max_tokens": 64,
            "template_id": "arithmetic-v1",
            "seed": seed,
        }
        | {"reward": ["math"], "samples": 4, "greedy": False, "pass_k": [1]},
        "problems": {"content_hash": "abcdef0123456789", "count": 40, "source": "/home/me/secret/mine.jsonl"}
        | {"content_hash_matches": None},
        "outcomes": {"sampled": COUNTS},
        "versions": {},
        "rewarded": {"labels": ["math"], "binary": True, "binary_parts": [True]},
        "scores": {"avg@4": {"value": value, "low": value - 0.1, "high": value + 0.1, "samples": 4, "problems": 40}},
        "notes": ["/home/me/secret/mine.jsonl: 40 of 41 rows kept", *notes],
    }
    write_json(run.evals / f"{benchmark}-v{version}-{seed}.json", record)


def export(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def code_of(card: str) -> str:
    (code,) = re.findall(r"````python\n(.*?)````", card, re.S)
    return str(code)


def run_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the card's snippet prints in its folder."""
    monkeypatch.chdir(folder)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code_of((folder / "README.md").read_text()), "card", "exec"), {})
    return printed.getvalue().removesuffix("\n")


def greedy(source: Any, template_id: str, max_tokens: int) -> str:
    """What gmc itself decodes greedily to the same question."""
    model, template = load_model(source), get_template(template_id)
    prompt = template.render(QUESTION, model.tokenizer)
    sampling = Sampling(temperature=0.0, max_tokens=max_tokens, stop=template.stop)
    ids = template.encode(prompt, model.tokenizer, QUESTION)
    ((response,),) = TransformersEngine(model).generate([ids], group_size=1, sampling=sampling, seeds=[0])
    return str(model.tokenizer.decode(response.token_ids, skip_special_tokens=True))


def test_nothing_is_written_until_told(tmp_path):
    run = make_run(tmp_path / "run")
    shown = export(run, "--to", tmp_path / "out")
    assert shown.exit_code == 0
    assert "nothing written; --write puts 8 files" in shown.stderr
    assert "# run, policy version 5" in shown.stdout
    assert not (tmp_path / "out").exists()
    wrote = export(run, "--to", tmp_path / "out", "--write")
    assert wrote.exit_code == 0
    assert "export 1/1" in wrote.stderr
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    expected = "README.md config.json generation_config.json gmc.json gmc_settings.toml model.safetensors tokenizer.json"
    assert names == [*expected.split(), "tokenizer_config.json"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".tmp")] == []
    inside = export(run, "--to", tmp_path / "run" / "policies" / "mine")
    assert (inside.exit_code, "lies in the run" in inside.stderr) == (2, True)
    assert "HF://" not in (hub := export(run, "--to", "HF://nobody/name")).stderr
    assert "into hf://nobody/name" in hub.stderr
    for write in ((), ("--write",)):
        again = export(run, "--to", tmp_path / "out", *write)
        assert (again.exit_code, "there is something already" in again.stderr) == (2, True)
        assert "export 0/1" not in again.stderr


@pytest.mark.parametrize(("template_id", "max_tokens"), [("arithmetic-v1", 32), ("boxed-v1", 12), ("chat-v1", 12)])
def test_the_snippet_of_the_card_runs_and_says_what_gmc_says(tmp_path, monkeypatch, template_id, max_tokens):
    model = load_model("embedded")
    model.tokenizer.chat_template = CHAT
    run = make_run(tmp_path / "run", model, f"problems.template={template_id}", f"rollout.max_tokens={max_tokens}")
    assert export(run, "--to", tmp_path / "out", "--write").exit_code == 0
    said = run_code(tmp_path / "out", monkeypatch)
    assert said == greedy(tmp_path / "out", template_id, max_tokens)
    if template_id == "arithmetic-v1":
        assert said == r"\boxed{42}"


def generation(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "generation_config.json").read_text()))


def test_whoever_loads_an_export_samples_as_training_did(tmp_path):
    model = load_model("embedded")
    model.network.generation_config.update(temperature=0.6, do_sample=True, top_p=0.9, repetition_penalty=1.2)
    run = make_run(tmp_path / "run", model, "rollout.temperature=0.7", "rollout.max_tokens=3")
    gmc.export_policy(run, tmp_path / "out")
    sampling = {"do_sample": True, "temperature": 0.7, "top_k": 0, "top_p": 1.0, "max_new_tokens": 3}
    said = generation(tmp_path / "out")
    said.pop("transformers_version")
    assert said == {"eos_token_id": [1], "pad_token_id": 0, **sampling}
    prompt = torch.tensor([[5, 6, 7, 8, 9]])
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert loaded.generate(prompt, eos_token_id=None).shape == (1, 5 + 3)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "holds what training sampled with: temperature 0.7, no top-k or top-p, at most 3 new tokens" in card


def test_an_export_is_evaluated_in_the_length_of_its_training(tmp_path):
    run = make_run(tmp_path / "run", None, "rollout.max_tokens=17")
    gmc.export_policy(run, tmp_path / "out")
    flags = {"model": str(tmp_path / "out"), "bench": None}
    _, settings = resolve_request(Request(), None, flags=flags)
    assert (settings.eval.max_tokens, settings.origins["eval.max_tokens"]) == (17, "generation_config.json")
    _, settings = resolve_request(Request(), None, flags=flags | {"max_tokens": 40})
    assert settings.eval.max_tokens == 40
    (tmp_path / "out" / "gmc.json").unlink()  # somebody else's model: its own length may be an example's
    _, settings = resolve_request(Request(), None, flags=flags)
    assert settings.eval.max_tokens == 4096


def test_the_card_says_how_the_policy_was_made(tmp_path):
    run = make_run(
        tmp_path / "run", None, "estimator.name=tic", "rollout.prompts=3", "optimizer.learning_rate=2e-4", versions=(0, 5)
    )
    add_result(run, 0, 0.5)
    add_result(run, 5, 0.625)
    plan = gmc.export_policy(run)
    head = plan.card.split("---")[1]
    assert "license: apache-2.0" in head
    assert "base_model" not in head  # "embedded" is nothing that the hub knows
    for line in (
        "| starting model | `embedded` |",
        "| data | the arithmetic that gmc generates from the seed |",
        "| delay | `ramp:3`: rollouts 0.5 updates old on average, 2 at most |",  # of updates 0 to 4
        "| mine | avg@4 | 50.0 [40.0, 60.0] | 62.5 [52.5, 72.5] | 4 | 40 |",
        "- mine: temperature 1, top-p 1, at most 64 tokens, prompt `arithmetic-v1`, reward math, seed 0, problems "
        "`abcdef012345`; mine.jsonl: 40 of 41 rows kept",
        "Problem: {question}",
    ):
        assert line in plan.card
    assert re.search(r"\| rule \| `tic` \(.*epsilon = 0.28.*\): Trajectory", plan.card)
    assert "5, each on 3 × 8 responses" in plan.card
    assert "learning rate 0.0002, cosine over 400 updates" in plan.card
    assert plan.notes == ()


def test_a_card_without_scores_says_so_and_so_does_the_command(tmp_path):
    plan = gmc.export_policy(make_run(tmp_path / "run"))
    assert "This policy was not evaluated." in plan.card
    assert "gmc eval --base" in plan.notes[0]


def test_no_path_of_this_machine_gets_out(tmp_path):
    model = tmp_path / "private" / "start"
    shutil.copytree(embedded_model_path(), model)
    (model / "README.md").write_text("---\nlicense: mit\n---\n# mine\n")
    problems = tmp_path / "private" / "mine.jsonl"
    problems.write_text('{"question": "What is $1+1$?", "answer": "2"}\n')
    function = tmp_path / "private" / "rewards.py"
    function.write_text("def short(completions, **columns):\n    return [1.0 for _ in completions]\n")
    run = make_run(
        tmp_path / "run",
        load_model(model),
        f"model.source={model}",
        f"problems.source={problems}",
        f'reward.parts=["{function}:short=0.2"]',
        "rollout.max_tokens=32",
        source=str(model),
    )
    overlap = f"4 of 9 problems are also training problems ({problems}), such as q-2ff"
    add_result(run, 5, 0.5, notes=[overlap, "not checked: /srv/secret/a.jsonl: no such file"])
    gmc.export_policy(run, tmp_path / "out")
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    for name, content in written.items():
        assert str(tmp_path).encode() not in content, name
        assert b"secret" not in content, name
    card = written["README.md"].decode()
    assert "license: mit" in card
    assert "| starting model | `start` |" in card
    assert (
        "; 4 of 9 problems are also training problems (mine.jsonl), such as q-2ff; not checked: a.jsonl: no such file" in card
    )
    assert "`mine.jsonl`, a file that is not part of this repository" in card
    assert "`rewards.py:short=0.2`" in card
    saved = tomllib.loads(written["gmc_settings.toml"].decode())
    assert saved["problems"]["source"] == "mine.jsonl"
    assert re.fullmatch(r"[0-9a-f]{16} rewards.py", saved["reward"]["code"][0])
    named = gmc.export_policy(run, base="Qwen/Qwen3-0.6B-Base", license="apache-2.0").card
    assert "base_model: Qwen/Qwen3-0.6B-Base\nbase_model_relation: finetune\nlicense: apache-2.0" in named


def test_names_of_the_hub_stay_and_paths_lose_their_folders(tmp_path):
    for name in ("Qwen/Qwen3-0.6B-Base", "owner/data:config", "embedded", "arithmetic:eval"):
        assert public_name(name) == name
    for path in ("/home/me/x", "~/x", "../x", "a/b/x"):
        assert public_name(path) == "x"
    assert public_name("data/mine.jsonl") == "mine.jsonl"
    tree = resolve_settings(flags={}).model_dump(mode="json") | {"delay": "schedule:/home/me/s.parquet"}
    assert public_settings(tree)["delay"] == "schedule:s.parquet"
    assert public_settings(tree | {"delay": "length:mean=4"})["delay"] == "length:mean=4"


def test_a_card_names_the_environment_that_answered(tmp_path):
    card = gmc.export_policy(make_run(tmp_path / "run", None, "rollout.environment=retry(tries=3)")).card
    assert re.search(r"\| environment \| `retry\(.*tries=3.*` answered the model", card)
    assert "This asks for the first turn alone" in card
    assert "environment |" not in gmc.export_policy(make_run(tmp_path / "plain")).card


def test_a_text_loses_the_folders_in_it_and_nothing_else():
    for text, left in (
        ("(/home/a b/x.jsonl) and /srv/y/z.parquet: gone", "(x.jsonl) and z.parquet: gone"),
        ("https://arxiv.org/abs/2610.01896 and Qwen/Qwen3 and 3/4", "https://arxiv.org/abs/2610.01896 and Qwen/Qwen3 and 3/4"),
        ("~/data/x.csv", "x.csv"),
    ):
        assert public_text(text, ["/home/a b/x.jsonl", "Qwen/Qwen3"]) == left


def test_the_best_policy_is_that_of_the_evaluation_that_most_took(tmp_path):
    run = make_run(tmp_path / "run", versions=(0, 5, 8))
    add_result(run, 5, 0.4)
    refused = export(run, "--to", tmp_path / "out", "--policy", "best")
    assert (refused.exit_code, "1 of its 3 policies" in refused.stderr) == (2, True)
    for version, value in ((0, 0.3), (8, 0.4)):
        add_result(run, version, value)
    add_result(run, 0, 0.9, benchmark="other")
    plan = gmc.export_policy(run, policy="best")
    assert plan.chosen.version == 5  # of equals the earlier
    assert "the best of 3 policies of the run by avg@4 on mine; a score that chose is too high on average" in plan.card
    add_result(run, 8, 0.41)
    assert gmc.export_policy(run, policy="best").chosen.version == 8
    with open(run / "metrics.jsonl", "a") as log:  # scores along the way go before
        log.write(json.dumps({"update": 9, "heldout/score": 0.1}) + "\n")
        log.write(json.dumps({"update": 10, "heldout/score": 0.3}) + "\n")
    publish_policy(load_model("embedded"), run / "policies", 11, RunDirectory.open(run).run_id)
    held_out = gmc.export_policy(run, policy="best")
    assert (held_out.chosen.version, "the best of 2 by the score on held-out problems" in held_out.card) == (11, True)
    assert gmc.export_policy(run, policy="0").chosen.version == 0
    assert gmc.export_policy(run).chosen.version == 11
    for policy, said in (("7", "has the versions 0, 5, 8, 11"), ("all", "one policy is exported")):
        with pytest.raises(UsageError, match=said):
            gmc.export_policy(run, policy=policy)


def test_results_of_other_runs_are_not_this_policys(tmp_path):
    run = make_run(tmp_path / "run")
    add_result(run, 5, 0.5)
    (path,) = (run / "evals").glob("*.json")
    record = json.loads(path.read_text())
    write_json(path, record | {"model": {**record["model"], "run_id": "another"}})
    assert "This policy was not evaluated." in gmc.export_policy(run).card


def adapted() -> Any:
    model = with_adapter(load_model("embedded"), rank=4, alpha=8.0)
    with torch.no_grad():
        for name, parameter in model.network.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.ones_like(parameter))
    return model


def test_an_adapter_alone_names_what_it_belongs_to(tmp_path, monkeypatch):
    pytest.importorskip("peft")
    run = make_run(tmp_path / "run", adapted())
    plan = gmc.export_policy(run, tmp_path / "out")
    assert any("--merge exports the whole model" in note for note in plan.notes)
    assert "library_name: peft" in plan.card
    assert "An adapter takes the generation settings of the model under it" in plan.card
    assert run_code(tmp_path / "out", monkeypatch) == greedy(tmp_path / "out", "arithmetic-v1", 64)
    named = gmc.export_policy(run, tmp_path / "named", base="me/start")
    assert json.loads((tmp_path / "named" / "adapter_config.json").read_text())["base_model_name_or_path"] == "me/start"
    assert "base_model: me/start\nbase_model_relation: adapter" in named.card
    assert not [note for note in named.notes if "--merge" in note]


def test_a_merged_adapter_is_a_model_of_its_own(tmp_path, monkeypatch):
    pytest.importorskip("peft")
    model = adapted()
    run = make_run(tmp_path / "run", model)
    plan = gmc.export_policy(run, tmp_path / "out", merge=True)
    assert "library_name: transformers" in plan.card
    assert not list((tmp_path / "out").glob("adapter_*"))
    assert generation(tmp_path / "out")["max_new_tokens"] == 64
    exported = model_candidate(str(tmp_path / "out"))
    exported.require_intact()
    assert exported.subject(load_model(tmp_path / "out"), "float32").version == 5
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, model.network(ids).logits, atol=1e-4, rtol=1e-4)
    assert weights_hash(load_model(tmp_path / "out").weights()) != weights_hash(load_model("embedded").weights())
    run_code(tmp_path / "out", monkeypatch)
    with pytest.raises(UsageError, match="a whole model already"):
        gmc.export_policy(make_run(tmp_path / "whole"), merge=True)


def test_a_license_is_what_the_starting_models_card_names(tmp_path, monkeypatch):
    assert license_of("embedded") == "apache-2.0"
    assert license_of(str(tmp_path)) == ""
    card = tmp_path / "README.md"
    for text, license_id in (
        ("---\nlicense: llama3\n---\ntext", "llama3"),
        ("no head", ""),
        ("---\n[unclosed\n---\n", ""),
        ("---\nlicense: [a, b]\n---\n", ""),
    ):
        card.write_text(text)
        assert license_of(str(tmp_path)) == license_id
    assert license_of("nobody/nothing") == ""  # the suite is offline


def test_texts_become_python_that_gives_them_back():
    for text in ("one", 'a\n"quoted"', "r\\n\nb", 'ends with "', "ends\nwith \\", 'three """\nquotes', "tab\t\nzero\0"):
        assert eval(literal(text)) == text
