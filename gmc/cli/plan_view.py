"""`gmc train --plan`: what a run takes of a GPU's memory, on the GPU that is there or on the usual sizes."""

from rich.table import Table

from gmc.cli.output import print_json, stderr, write_line
from gmc.config.settings import RunSettings
from gmc.resolving.memory import GIB, GPUS, MemoryPlan, fitted_plan, gpu_bytes


def print_plan(settings: RunSettings, *, as_json: bool) -> None:
    """The plan by GPU. Where the token budget and checkpointing were not given, each size gets what fits it."""
    present = gpu_bytes()
    sizes = {"this GPU": present} if present else {name: int(gib * GIB) for name, gib in GPUS.items()}
    plans = {name: fitted_plan(settings, capacity) for name, capacity in sizes.items()}
    if as_json:
        print_json({name: plan.record() for name, plan in plans.items()})
        return
    stderr.print(_table(plans))
    write_line(
        f"{settings.model.source}, responses of up to {settings.rollout.max_tokens} tokens, {settings.rollout.engine}; "
        "per GPU: each rank holds its own copy, or a part where it is sharded. Estimates from counts of saved tensors, not yet "
        "compared with a GPU's allocator"
    )


def _table(plans: dict[str, MemoryPlan]) -> Table:
    table = Table("GiB", *plans, box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    names = list(dict.fromkeys(name for plan in plans.values() for name in plan.parts))
    for name in names:
        table.add_row(name, *(f"{plan.parts.get(name, 0) / GIB:.1f}" for plan in plans.values()))
    if any(plan.sampling for plan in plans.values()):
        table.add_row("sampling, before", *(f"{plan.sampling / GIB:.1f}" for plan in plans.values()))
    table.add_row("at most", *(f"{plan.total / GIB:.1f}" for plan in plans.values()), style="bold")
    table.add_row("fits", *("yes" if plan.fits else "no" for plan in plans.values()), style="bold")
    if any(plan.ranks > 1 for plan in plans.values()):
        table.add_row("sharded over", *(f"{plan.ranks} GPUs" if plan.ranks > 1 else "no" for plan in plans.values()))
    table.add_row("tokens a micro-batch", *(str(plan.micro_batch_tokens) for plan in plans.values()))
    table.add_row("checkpointing", *("yes" if plan.checkpointing else "no" for plan in plans.values()))
    return table
