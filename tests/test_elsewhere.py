"""What a batch that a sampling process made says of its launch."""

import dataclasses
from pathlib import Path

import pytest
from shard_samples import METADATA, make_rollouts

from gmc.rollouts.elsewhere import launch_of
from gmc.store.shards.reader import Shard

pytestmark = pytest.mark.unit


def test_lengths_count_what_was_sampled_and_not_what_an_environment_wrote():
    rows = make_rollouts(batch=0, version=0)
    rows[0] = dataclasses.replace(rows[0], response_token_ids=[5, 6, 7], response_mask=[True, False, True])
    lengths_PG = launch_of(Shard(METADATA, rows, Path("shard"))).lengths_PG
    assert lengths_PG[0][0] == 2
    assert lengths_PG[0][1] == len(rows[1].response_token_ids)
