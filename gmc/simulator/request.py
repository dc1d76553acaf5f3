"""What `gmc simulate-delay` is asked, whichever way it simulates."""

from dataclasses import dataclass
from pathlib import Path

from gmc.config.described import check_bounds, described
from gmc.errors import UsageError
from gmc.simulator.cluster_settings import DEFAULT_SIZE, DEFAULT_UPDATES

MOST_UPDATES = 1_000_000
MOST_RESPONSES = 20_000_000
_SIZE = f"the run's, else {DEFAULT_SIZE}"


@dataclass(frozen=True)
class SimulationRequest:
    """run: a run or folder of shards whose response lengths are used, None for those of `lengths`."""

    run: Path | None = None
    delay: str | None = described(
        "Delay to simulate, as for gmc train: length:28, length:mean=160, uniform:0:64, …; or 'recorded', what the run's "
        "updates used",
        default=None,
    )
    lengths: str | None = described(
        "lognormal:MEAN:SIGMA (arithmetic mean in tokens, sigma of the log), or a file with one length a line", default=None
    )
    updates: int | None = described(
        "Updates to simulate", least=1, default=None, default_text=f"{DEFAULT_UPDATES}, or as many as are recorded"
    )
    prompts: int | None = described("P, groups an update", least=1, default=None, default_text=_SIZE)
    group_size: int | None = described("G, responses a group", least=1, default=None, default_text=_SIZE)
    seed: int = described("Seed of everything that is drawn", least=0, default=0)
    schedule: Path | None = described(
        "Write which rollout is used at which update, for gmc train --delay schedule:FILE", default=None
    )
    overwrite: bool = described("Replace an existing schedule that differs", default=False)
    plot: Path | None = described("Also draw the picture to a .png or .svg file", default=None)
    epsilon: float = described("ε of the bounds", least=0.001, default=0.28, panel="Theory")
    eta: float | None = described(
        "η of the bounds, the theory's step size", above=0, default=None, default_text="N^(-1/2)", panel="Theory"
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        if (self.run is None) == (self.lengths is None):
            raise UsageError(
                "gmc simulate-delay: say where lengths come from: a run directory, or --lengths lognormal:570:0.6, and not both"
            )
        if self.eta is not None and self.eta > 1:
            raise UsageError(f"--eta {self.eta:g}: must be above 0 and at most 1")
        if self.updates is not None and self.updates > MOST_UPDATES:
            raise UsageError(f"--updates {self.updates}: at most {MOST_UPDATES:,}")
        if (responses := (self.prompts or 1) * (self.group_size or 1)) > MOST_RESPONSES:
            raise UsageError(
                f"--prompts {self.prompts or 1:,} × --group-size {self.group_size or 1:,}: {responses:,} responses an update, "
                f"and at most {MOST_RESPONSES:,} can be simulated"
            )
