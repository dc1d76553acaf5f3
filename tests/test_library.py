"""gmc as a library: the page in docs runs as it stands, and the functions are those under the commands."""

import logging
import re
from pathlib import Path

import pytest

import gmc
from gmc.config.flags import SETTING_OF, settings_of_flags

PAGE = Path(__file__).parent.parent / "docs" / "notebook.md"
SMALL = {"prompts": 4, "group_size": 4, "max_tokens": 40}


@pytest.mark.train
def test_the_notebook_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) >= 6
    try:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    finally:
        logging.getLogger("gmc").setLevel(logging.NOTSET)
    rewards, metrics = names["rewards"], names["metrics"]
    assert list(metrics["reward/mean"]) == rewards
    assert len(rewards) == 6
    scores = names["scores"].to_frame()
    assert set(scores["model"]) == {"base", "v000006"}
    assert ((scores["low"] <= scores["value"]) & (scores["value"] <= scores["high"])).all()
    assert len(names["rollouts"]) == 6 * 4 * 4


@pytest.mark.train
def test_the_library_and_the_command_make_the_same_rollouts_and_weights(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from gmc.cli.app import app

    gmc.train(tmp_path / "library", updates=2, delay=1, learning_rate=1e-3, **SMALL)
    flags = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = ["train", "--run", str(tmp_path / "command"), "--updates", "2", "--delay", "1", "--learning-rate", "1e-3", *flags]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    weights = [tmp_path / name / "policies" / "v000002" / "model.safetensors" for name in ("library", "command")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.train
def test_messages_can_be_silenced_and_redirected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="gmc"):
        logging.getLogger("gmc").propagate = True
        gmc.train(tmp_path / "run", updates=1, delay=0, **SMALL)
        gmc.train(tmp_path / "run", updates=1, resume=True)
    assert "model embedded (default)" in caplog.text


@pytest.mark.unit
def test_an_unknown_keyword_is_one_line_with_the_nearest_name() -> None:
    with pytest.raises(gmc.UsageError, match="group_sizes: no such flag; did you mean group_size"):
        gmc.train("nowhere", group_sizes=4)
    with pytest.raises(gmc.UsageError, match="a run or a model"):
        gmc.evaluate()


@pytest.mark.unit
def test_every_flag_of_the_library_has_its_setting() -> None:
    for name, key in SETTING_OF.items():
        assert settings_of_flags({name: 1}) == {key: 1}


@pytest.mark.unit
def test_a_run_without_rollouts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(gmc.UsageError, match="no rollouts here"):
        gmc.read_rollouts(tmp_path)
    assert repr(gmc.Run(gmc.Run(tmp_path))) == f"Run({str(tmp_path)!r})"


@pytest.mark.unit
def test_the_package_lists_what_it_offers() -> None:
    assert set(gmc.__all__) <= set(dir(gmc))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        gmc.nonsense  # noqa: B018


@pytest.mark.train
def test_an_evaluation_from_python_is_the_commands(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from gmc.cli.app import app
    from gmc.store.run_directory import RunDirectory

    run, problems = tmp_path / "run", tmp_path / "mine.jsonl"
    problems.write_text('{"question": "2 + 3", "answer": "5"}\n{"question": "4 + 4", "answer": "8"}\n')
    gmc.train(run, updates=1, delay=0, **SMALL)
    scores = gmc.evaluate(
        run, problems=problems, template="arithmetic-v1", n=2, greedy=False, out=tmp_path / "library"
    ).to_frame()
    saved = RunDirectory.open(run).settings("eval").read_text("utf-8")
    words = ["eval", "--run", run, "--problems", problems, "--template", "arithmetic-v1", "--n", "2", "--no-greedy"]
    words += ["--out", tmp_path / "command"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert scores["benchmark"].nunique() == 1, "a problem file is the only benchmark unless others are named"
    assert RunDirectory.open(run).settings("eval").read_text("utf-8").split("[origins]")[0] == saved.split("[origins]")[0]
    files = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("library", "command")]
    assert files[0] == files[1]
    with pytest.raises(gmc.UsageError, match="sample: no such flag"):
        gmc.evaluate(run, sample=4)
    with pytest.raises(gmc.UsageError, match="belong to a run"):
        gmc.evaluate(model="embedded", base=True)


@pytest.mark.unit
@pytest.mark.parametrize("setting", [{"rollout.engine": "nothing"}, {"rollout.top_p": 0.5}])
def test_what_cannot_be_sampled_with_is_refused_before_anything_is_made(tmp_path: Path, setting: dict[str, object]) -> None:
    for call in (gmc.rollout, gmc.train):
        with pytest.raises(gmc.UsageError):
            call(tmp_path / "run", settings=setting)
    assert not (tmp_path / "run").exists()
