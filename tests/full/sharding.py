"""Every rule with 2 and 3 ranks, with and without checkpointing and shared prompts, against one process; about ten minutes.

python -m tests.full sharding [RANKS …]
"""

import itertools
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where pytest finds what tests share


def main() -> int:
    from sharding_runs import SHARDED, job, run_jobs
    from test_sharding import BATCHES, RULES, assignments, make_rollouts, require_equal
    from training_runs import small_settings, train_run

    RULES["truncated"] = ["estimator=truncated"]  # its weights look at a response; those of the others at a token or a group
    wrong, started = 0, time.monotonic()
    counts = [int(said) for said in sys.argv[1:]] or [*BATCHES]
    choices = list(
        itertools.product(RULES, ("checkpointing=false", "checkpointing=true"), ("share_prompts=false", "share_prompts=true"))
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rollouts = make_rollouts(folder)
        for ranks in counts:
            cases = {"-".join(choice) + f"-{ranks}": assignments(choice[0], ranks, *choice[1:]) for choice in choices}
            jobs = [job(folder / name, *case, SHARDED, rollouts=rollouts[ranks]) for name, case in cases.items()]
            run_jobs(ranks, *jobs, seconds=7200)
            for name, case in cases.items():
                train_run(folder / f"{name}-alone", small_settings(*case), rollouts_from=rollouts[ranks])
                try:
                    require_equal(folder / f"{name}-alone", folder / name)
                except AssertionError as error:
                    wrong += 1
                    print(f"WRONG {name}: {error}", flush=True)
                else:
                    print(f"ok    {name}", flush=True)
    print(f"{len(choices) * len(counts)} runs, {wrong} wrong, {time.monotonic() - started:.0f} s")
    return int(wrong > 0)
