"""All figures of the exact model: 96 pairs of policies, quality at three drifts, bias at five group sizes. Some minutes."""

from gmc.lab.arms import Arm
from gmc.lab.exact.grid import KEYS, ExactGrid, run_grid
from gmc.lab.exact.groups import all_groups_PG
from gmc.lab.study_file import ResultLines
from tests.lab_exact_figures import BIAS_BY_GROUP_SIZE, QUALITY, bias_by_group_size, check_bounds, pairs_by_drift


def main() -> None:
    policy, rewards_K, pairs = pairs_by_drift(per_drift=6)
    groups_PG = all_groups_PG(8, 8)
    divergences = [check_bounds(policy, rewards_K, pair, groups_PG) for pair in pairs]
    print(f"{len(pairs)} pairs of policies, KL {min(divergences):.2g} to {max(divergences):.2g}: every bound holds")
    arms = [Arm.parse(text) for text in QUALITY]
    records, _ = run_grid(ExactGrid(drifts=[1.0, 2.0, 4.0]), arms, ResultLines(None, KEYS), lambda count, note: None)
    found = {(record["arm"], record["drift"]): record["quality"] for record in records}
    for text, by_drift in QUALITY.items():
        for drift, wanted in by_drift.items():
            value = found[Arm.parse(text).label, drift]
            assert abs(value - wanted) <= 0.6e-5, (text, drift, value, wanted)
    print(f"quality: {len(found)} figures agree to five decimals")
    for rule, by_size in BIAS_BY_GROUP_SIZE.items():
        for group_size, wanted in by_size.items():
            value = bias_by_group_size(rule, group_size)
            print(f"relative bias of {rule} at G = {group_size}: {value:.4f}")
            assert abs(value - wanted) <= (0.0051 if rule == "gmc" else 0.00051), (rule, group_size, value, wanted)
