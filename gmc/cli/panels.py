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
    "lab": ("gmc lab exact --estimator gmc", "gmc lab --help"),
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


def examples(name: str) -> str:
    """What stands below a command's help."""
    return "Examples:\n\n" + "\n\n".join(f"$ {example}" for example in EXAMPLES[name])
