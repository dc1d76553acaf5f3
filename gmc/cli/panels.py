"""The order, the panels and the examples of the commands in the help."""

LOOP, LOOK, LABORATORY, PLUGINS, MACHINE = "The loop", "Look", "Laboratory", "Plug-ins", "Machine"
PANELS = {
    LOOP: ("rollout", "train", "eval", "simulate-delay"),
    LOOK: ("status", "runs", "samples", "grade", "shards"),
    LABORATORY: ("lab",),
    PLUGINS: ("estimators", "delays", "rewards", "environments"),
    MACHINE: ("export", "fleet", "doctor"),
}
"""The commands by panel of the help, in its order."""
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
EXAMPLES = {
    "rollout": ("gmc rollout --run runs/base --batches 8", "gmc rollout --follow --run runs/live --engine vllm"),
    "train": ("gmc train --run runs/demo --estimator gmc --delay 64", "gmc train --run runs/demo --resume --updates 800"),
    "eval": ("gmc eval --run runs/demo", "gmc eval --run runs/demo --bench math500 --n 4 --policy all"),
    "simulate-delay": (
        "gmc simulate-delay --delay geometric:64 --lengths lognormal:570:0.6",
        "gmc simulate-delay runs/demo --delay 256 --updates 800",
    ),
    "status": ("gmc status runs/demo", "gmc status runs/live --watch"),
    "runs": ("gmc runs", "gmc runs runs/sweep --json"),
    "grade": (r"gmc grade --gold 1/2 --response '\boxed{0.5}'", "gmc grade --prompt 'What is 2 + 3?'"),
    "samples": ("gmc samples runs/demo --show worst --count 5", "gmc samples runs/demo --group 0:3 --html group.html"),
    "shards": ("gmc shards import theirs.parquet --out runs/theirs", "gmc shards check runs/demo"),
    "lab": ("gmc lab exact --estimator gmc", "gmc lab report runs/demo"),
    "estimators": ("gmc estimators show gmc", "gmc estimators new my-rule"),
    "delays": ("gmc delays show ramp", "gmc delays new my-delay"),
    "rewards": ("gmc rewards try math --count 3", "gmc rewards new my-reward"),
    "environments": ("gmc environments show retry", "gmc environments new my-world"),
    "export": ("gmc export runs/demo --to demo-policy", "gmc export runs/demo --to hf://me/demo --policy best --write"),
    "fleet": (
        "gmc fleet --run runs/live --followers 2",
        "gmc fleet --run runs/live --followers 8 --gpus-each 1 --address auto",
    ),
    "doctor": ("gmc doctor", "gmc doctor --json"),
}


BELOW = {
    "eval arms": ("gmc eval arms runs/sweep/*", "gmc eval arms runs/gmc-* runs/grpo-* --plot arms.svg --json"),
    "eval compare": (
        "gmc eval compare runs/demo/evals/before.json runs/demo/evals/after.json",
        "gmc eval compare before after --seed 1 --json",
    ),
    "lab exact": ("gmc lab exact --estimator gmc", "gmc lab exact --estimator gmc --estimator tic --json"),
    "lab toy": ("gmc lab toy --estimator gmc --updates 50", "gmc lab toy --estimator gmc --estimator tic --delay 0 --delay 8"),
    "lab sweep": ("gmc lab sweep recipes/lab/s2.toml --dry-run", "gmc lab sweep recipes/lab/s2.toml --jobs 2"),
    "lab report": ("gmc lab report runs/lab/s2 --out report", "gmc lab report runs/demo runs/other --baseline gmc"),
    "lab step": ("gmc lab step --estimator gmc", "gmc lab step --estimator tic --json"),
    "estimators list": ("gmc estimators list", "gmc estimators list --json"),
    "estimators show": ("gmc estimators show gmc", "gmc estimators show tic --json"),
    "estimators new": ("gmc estimators new my-rule", "gmc estimators new my-rule --out rules"),
    "estimators compare": (
        "gmc estimators compare runs/demo --model runs/demo/policies/v000100",
        "gmc estimators compare runs/demo --model embedded --estimator gmc --fresh 2",
    ),
    "delays list": ("gmc delays list", "gmc delays list --json"),
    "delays show": ("gmc delays show ramp", "gmc delays show length --json"),
    "delays new": ("gmc delays new my-delay", "gmc delays new my-delay --out delays"),
    "rewards list": ("gmc rewards list", "gmc rewards list --json"),
    "rewards show": ("gmc rewards show math", "gmc rewards show length --json"),
    "rewards try": ("gmc rewards try math --count 3", "gmc rewards try rewards.py:short --problems mine.jsonl"),
    "rewards new": ("gmc rewards new my-reward", "gmc rewards new my-reward --out rewards"),
    "environments list": ("gmc environments list", "gmc environments list --json"),
    "environments show": ("gmc environments show retry", "gmc environments show tools --json"),
    "environments try": (
        "gmc environments try retry --count 2",
        r"gmc environments try tools --say '<tool>2*3</tool>' --say '\boxed{6}'",
    ),
    "environments new": ("gmc environments new my-world", "gmc environments new my-world --out worlds"),
    "shards import": (
        "gmc shards import theirs.parquet --out runs/theirs",
        "gmc shards import theirs.jsonl --out runs/theirs --column reward=score",
    ),
    "shards check": ("gmc shards check runs/demo", "gmc shards check runs/demo/rollouts/b000000-v000000.parquet --json"),
}
"""The same of the commands of groups."""


def examples(name: str) -> str:
    """What stands below a command's help. name: as it is typed, such as "lab sweep"."""
    return "Examples:\n\n" + "\n\n".join(f"$ {example}" for example in {**EXAMPLES, **BELOW}[name])
