"""`gmc samples`: which rollouts are chosen, and that no text of a model reaches a terminal or a page raw."""

import json
import math
import os
import shutil
import subprocess
from dataclasses import replace

import pytest
import torch
from shard_samples import METADATA, make_rollouts
from test_site import script
from training_runs import small_settings, train_run
from typer.testing import CliRunner

from gmc.cli.app import app
from gmc.cli.samples_page import _token
from gmc.cli.samples_view import _style
from gmc.models import load_model, tokenizer_hash
from gmc.store.shards.reader import read_shard
from gmc.store.shards.select import KINDS, Seen, disagreement
from gmc.store.shards.writer import write_shard

NASTY = "</pre><script>document.title='owned'</script>\x1b[31m\x07\u202e<b>"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
runner = CliRunner()


@pytest.fixture
def shards(tmp_path):
    """Two groups of three; the response of group 1, sample 2 attacks whoever shows it."""
    texts = ["alpha", "beta", "gamma", "delta", "epsilon", NASTY]
    values = [
        (0.5, [0.0, 1.0]),
        (1.0, [1.0, 0.0]),
        (-1.0, [0.5, 0.5]),
        (0.25, [0.5, 0.5]),
        (2.0, [1.0, 1.0]),
        (0.0, [0.0, 0.0]),
    ]
    rows = [
        replace(row, response=text, turns=None, reward=reward, reward_parts=parts, note=None)
        for row, text, (reward, parts) in zip(make_rollouts(), texts, values, strict=True)
    ]
    write_shard(tmp_path / "b000004-v000002.parquet", rows, METADATA)
    return tmp_path


def gmc(*arguments, width="100"):
    environment = {"COLUMNS": width, "TERM": "dumb"}
    return runner.invoke(app, ["samples", *map(str, arguments)], catch_exceptions=False, env=environment)


def responses(*arguments):
    (section,) = json.loads(gmc(*arguments, "--json").stdout)["sections"]
    return [one["response"] for one in section["responses"]]


@pytest.mark.unit
def test_each_kind_chooses_by_value(shards):
    assert responses(shards, "--show", "best", "--count", 2) == ["epsilon", "beta"]
    assert responses(shards, "--show", "worst", "--count", 2) == ["gamma", NASTY]
    # Samples 0 are cut off; longer ones first.
    cut = {"alpha": 0, "delta": 3}
    lengths = [len(row.response_token_ids) for row in make_rollouts()]
    wanted = sorted(cut, key=lambda text: -lengths[cut[text]])
    assert responses(shards, "--show", "truncated", "--count", 9) == wanted
    assert responses(shards, "--show", "unparseable", "--count", 9) == ["alpha", "gamma", "delta", NASTY]
    # Parts (0, 1) and (1, 0) lie farthest apart; equal ones last.
    assert set(responses(shards, "--show", "disagreement", "--count", 2)) == {"alpha", "beta"}
    assert responses(shards, "--group", "4:1") == ["delta", "epsilon", NASTY]


@pytest.mark.unit
def test_parts_that_say_nothing_are_not_in_dispute(tmp_path):
    rows = [replace(row, reward_parts=[1.0, float("nan")]) for row in make_rollouts()]
    assert disagreement([Seen(row, METADATA, tmp_path) for row in rows]) == []


@pytest.mark.unit
def test_filters_leave_what_they_say(shards):
    assert responses(shards, "--show", "best", "--contains", "lph") == ["alpha"]
    assert responses(shards, "--show", "best", "--status", "correct", "--count", 9) == ["epsilon", "beta"]
    assert responses(shards, "--show", "best", "--problem", "p1", "--count", 1) == ["epsilon"]
    for arguments, words in (
        (("--contains", "no such text"), "1 shards, and none of their rollouts is wanted"),
        (("--version", 9), "none of their rollouts is wanted"),
        (("--show", "good"), "there are best, worst"),
        (("--group", "4"), "write it as BATCH:GROUP"),
        (("--group", "4:9"), "no such group"),
        (("--color", "red"), "tokens are colored by logprob, ratio, weight"),
    ):
        refused = gmc(shards, *arguments)
        assert refused.exit_code == 2, arguments
        assert words in " ".join(refused.stderr.split())


@pytest.mark.unit
@pytest.mark.parametrize("arguments", [(), ("--group", "4:1")])
def test_nothing_of_a_response_steers_the_terminal(shards, arguments):
    shown = gmc(shards, *arguments, width="160").stdout
    assert r"\x1b[31m\x07\u202e" in shown
    for character in "\x1b\x07\u202e":
        assert character not in shown
    assert set(KINDS) >= {line.split(" (")[0] for line in shown.splitlines() if " of " in line and "(" in line} - {
        "group 4:1, problem p1"
    }


@pytest.fixture
def page(shards):
    assert gmc(shards, "--html", shards / "page.html").exit_code == 0
    return shards / "page.html"


@pytest.mark.unit
def test_the_page_is_self_contained_and_escapes(page):
    text = page.read_text("utf-8")
    assert "<script>document" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert 'name="viewport" content="width=device-width' in text


@pytest.mark.process
@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
def test_a_browser_shows_the_page_and_runs_nothing_of_it(page, tmp_path):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--dump-dom"]
    done = subprocess.run(
        [*command, "--window-size=400,800", page.as_uri()], capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {"HOME": str(tmp_path)},
    )  # fmt: skip
    assert "epsilon" in done.stdout, done.stderr[-2000:]
    assert "<title>Samples of" in done.stdout  # and not "owned"
    assert done.stdout.count("<article") == page.read_text("utf-8").count("<article")


@pytest.mark.process
@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
def test_the_page_fits_a_phone_whatever_is_written_without_a_space(tmp_path):
    """A group side by side and sections below each other, with long words wherever a text of a model or of a file stands."""
    long, short = {"response": "x" * 3000, "prompt": "p" * 900}, {"response": "<b>" * 900}
    said = {"prediction": "7" * 800, "answer": "y" * 700, "note": "z" * 600, "status": "s" * 500}
    rows = [replace(row, turns=None, problem_id=f"{'q' * 400}{row.group}", **said, **(long, short)[row.sample % 2])
            for row in make_rollouts()]  # fmt: skip
    pages, shards = tmp_path / "pages", tmp_path / ("r" * 200)
    pages.mkdir()
    shards.mkdir()
    write_shard(shards / "b000004-v000002.parquet", rows, METADATA)
    for name, arguments in (("group", ("--group", "4:1")), ("sections", ("--count", 2))):
        assert gmc(shards, *arguments, "--html", pages / f"{name}.html").exit_code == 0
    assert (pages / "group.html").read_text("utf-8").count("<article") == 3
    told = script("look_at_pages").too_wide(pages, BROWSER, widths=(1280, 390, 320))
    assert (told["pages"], told["found"]) == (2, [])


@pytest.mark.unit
def test_turns_are_shown_with_who_said_them(tmp_path):
    rows = [replace(row, turns=["so", "\nno<b>", "four"] if row.sample == 1 else None) for row in make_rollouts()]
    write_shard(tmp_path / "b000004-v000002.parquet", rows, METADATA)
    shown = gmc(tmp_path, "--show", "best", "--count", "1", width="160").stdout
    assert [shown.index(part) for part in ("[model] so", "[environment] no<b>", "[model] four", "2 turns")] == sorted(
        shown.index(part) for part in ("[model] so", "[environment] no<b>", "[model] four", "2 turns")
    )
    (section,) = json.loads(gmc(tmp_path, "--show", "best", "--count", "1", "--json").stdout)["sections"]
    assert section["responses"][0]["turns"] == ["so", "\nno<b>", "four"]
    gmc(tmp_path, "--show", "best", "--count", "1", "--html", tmp_path / "page.html")
    assert '<span class="told" title="environment">\nno&lt;b&gt;</span>' in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.unit
def test_tokens_are_colored_by_the_log_probs_of_the_shard(tmp_path):
    model = load_model("embedded")
    ids = [int(token) for token in model.tokenizer("so 4")["input_ids"]]
    values = [-0.25 * (1 + place) for place in range(len(ids))]
    empty = {"trainer_entropies": None, "response_mask": None, "token_versions": None}
    rows = [
        replace(row, response_token_ids=ids, engine_logprobs=values, trainer_logprobs=values, **empty)
        for row in make_rollouts()
    ]
    record = replace(METADATA, tokenizer_hash=tokenizer_hash(model.tokenizer), vocabulary_size=model.vocabulary_size)
    write_shard(tmp_path / "b000004-v000002.parquet", rows, record)
    (section,) = json.loads(gmc(tmp_path, "--show", "best", "--color", "logprob", "--json").stdout)["sections"]
    tokens = section["responses"][0]["tokens"]
    assert "".join(text for text, _ in tokens) == "so 4"
    assert [value for _, value in tokens] == values
    gmc(tmp_path, "--show", "best", "--count", 1, "--color", "logprob", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    pieces = [text for text, _ in tokens]
    assert len(pieces) == 4
    for piece, value, others in zip(pieces, ("-0.25", "-0.50", "-0.75", "-1.00"), (240, 225, 211, 196), strict=True):
        assert f'<span class="t" title="{value}" style="background:rgb(255,{others},{others})">{piece}</span>' in page
    refused = gmc(tmp_path, "--color", "ratio")
    assert refused.exit_code != 0


@pytest.mark.unit
def test_what_has_become_less_likely_is_red_and_what_has_become_more_likely_green():
    assert [_style(value) for value in (-9.0, -3.0, -1.5)] == [
        "on rgb(255,80,80) black", "on rgb(255,80,80) black", "on rgb(255,167,167) black",
    ]  # fmt: skip
    assert [_style(value) for value in (0.0, 1.5, 3.0, 9.0)] == [
        "on rgb(255,255,255) black", "on rgb(167,255,167) black", "on rgb(80,255,80) black", "on rgb(80,255,80) black",
    ]  # fmt: skip
    assert [_token("<b>", value) for value in (-3.0, 3.0)] == [
        f'<span class="t" title="{value}" style="background:rgb({color})">&lt;b&gt;</span>'
        for value, color in (("-3.00", "255,80,80"), ("3.00", "80,255,80"))
    ]


@pytest.mark.train
def test_tokens_are_colored_by_the_weights_of_the_runs_rule(tmp_path):
    """Plain importance weighting: every token has the ρ of its response times its leave-one-out advantage."""
    run = tmp_path / "run"
    settings = ("delay=1", "estimator=is", "train.updates=2", "optimizer.learning_rate=5e-4")
    train_run(run, small_settings(*settings, "rollout.max_tokens=24"))
    rows = [row for path in sorted((run / "rollouts").glob("b*.parquet")) for row in read_shard(path).rollouts]
    mixed = [row for row in rows if len({other.reward for other in rows if shares_group(row, other)}) > 1]
    model, checked = load_model(run / "policies" / "v000002"), 0
    chosen = f"{mixed[0].batch}:{mixed[0].group}"
    (section,) = json.loads(gmc(run, "--group", chosen, "--color", "weight", "--json").stdout)["sections"]
    (ratios,) = json.loads(gmc(run, "--group", chosen, "--color", "ratio", "--json").stdout)["sections"]
    for shown, ratio in zip(section["responses"], ratios["responses"], strict=True):
        (row,) = (row for row in rows if all(shown[name] == getattr(row, name) for name in ("batch", "group", "sample")))
        ids = torch.tensor([[*row.prompt_token_ids, *row.response_token_ids]])
        with torch.no_grad():
            logp = model.network(ids).logits[0, :, : model.vocabulary_size].double().log_softmax(-1)
        place = len(row.prompt_token_ids) - 1
        now_T = [float(logp[place + token, index]) for token, index in enumerate(row.response_token_ids)]
        changes_T = [new - old for new, old in zip(now_T, row.trainer_logprobs, strict=True)]
        assert [value for _, value in ratio["tokens"]] == pytest.approx(changes_T, abs=1e-4)
        assert max(map(abs, changes_T)) > 1e-3
        others = [other.reward for other in rows if shares_group(row, other) and other.sample != row.sample]
        wanted = math.exp(sum(changes_T)) * (row.reward - sum(others) / len(others))
        assert [value for _, value in shown["tokens"]] == pytest.approx([wanted] * len(row.response_token_ids), rel=1e-4)
        checked += abs(wanted) > 0.01
    assert checked
    (run / "settings" / "train.toml").unlink()
    refused = gmc(run, "--group", chosen, "--color", "weight")
    assert (refused.exit_code, "has not trained, so no rule gives its tokens weights" in " ".join(refused.stderr.split())) == (
        2,
        True,
    )


def shares_group(row, other):
    return (row.batch, row.group) == (other.batch, other.group)
