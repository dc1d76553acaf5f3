"""The zoo: a few architectures here, all of them by `python -m tests.full zoo`, whose result is docs/models.md."""

import json

import pytest

from docs.make_models_page import PAGE, RESULTS, page
from tests.zoo.drive import drive
from tests.zoo.table import TABLE


@pytest.mark.unit
def test_the_page_is_what_the_last_run_of_the_whole_zoo_found():
    assert PAGE.read_text("utf-8") == page(), "python docs/make_models_page.py"
    found = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]
    assert [row["name"] for row in found] == [row.name for row in TABLE], "python -m tests.full zoo"
    assert sum(not row["refusal"] for row in found) >= 26


@pytest.mark.train
@pytest.mark.parametrize("architecture", [row for row in TABLE if row.quick], ids=lambda row: row.name)
def test_an_architecture_goes_through_everything(architecture, tmp_path):
    outcome = drive(architecture, tmp_path)
    wanted = next(row for row in map(json.loads, RESULTS.read_text("utf-8").splitlines()) if row["name"] == architecture.name)
    assert (outcome.decoding, outcome.scoring, outcome.context, outcome.refusal) == (
        wanted["decoding"],
        wanted["scoring"],
        wanted["context"],
        "",
    )
