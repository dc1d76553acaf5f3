"""Signs that a run has diverged or died, each said once with its update and metric; `train.stop_on` lets one end the run."""

import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

DRIFT = -1.0
"""Mean log-ratio a token (nats) below which the policy has left what its rollouts were sampled from. Stale rollouts of a
healthy run lie above −0.1."""

SILENT_UPDATES = 20
"""Updates in a row without a single group of unequal rewards that make a run dead."""


@dataclass
class DivergenceWatch:
    """Looks at each update's metrics. stop_on: the signs that end the run.

    non-finite: a metric is no number. drift: the mean log-ratio a token is below `DRIFT`. no-gradient: the gradient is zero
    though rewards differ within a group. no-signal: `SILENT_UPDATES` in a row taught nothing. found: the first sign in
    `stop_on` that was seen, as its warning says it, "" before.
    """

    stop_on: Collection[str] = ()
    found: str = ""
    _said: set[str] = field(default_factory=set)
    _silent: int = 0

    def look(self, update: int, metrics: Mapping[str, float]) -> None:
        """Warn of every sign that this update is the first to show."""
        self._silent = self._silent + 1 if metrics["reward/equal_groups_share"] == 1 else 0
        for sign, what in self._signs(metrics).items():
            if sign in self._said:
                continue
            self._said.add(sign)
            line = f"update {update}: {sign}: {what}"
            log.warning("%s%s", line, "" if sign in self.stop_on else f"; --set 'train.stop_on=[\"{sign}\"]' ends such a run")
            if sign in self.stop_on and not self.found:
                self.found = line

    def _signs(self, metrics: Mapping[str, float]) -> dict[str, str]:
        signs = {}
        odd = next((name for name, value in metrics.items() if not math.isfinite(value)), None)
        if odd is not None:
            signs["non-finite"] = f"{odd} = {metrics[odd]}"
        if (drift := metrics["ratio/log_per_token_mean"]) < DRIFT:
            signs["drift"] = (
                f"ratio/log_per_token_mean = {drift:.3g}: the policy gives the tokens it is trained on almost no probability; "
                "lower optimizer.learning_rate, and go on from a policy before this"
            )
        taught = metrics["reward/equal_groups_share"] < 1 and not metrics["optimizer/skipped"]
        if taught and metrics["optimizer/gradient_norm"] == 0:
            signs["no-gradient"] = (
                "optimizer/gradient_norm = 0 though rewards differ: the rule gives every response the weight 0 "
                f"(ratio/log_rho_mean = {metrics['ratio/log_rho_mean']:.3g})"
            )
        if self._silent >= SILENT_UPDATES:
            signs["no-signal"] = f"reward/equal_groups_share = 1 for {self._silent} updates: no group had unequal rewards"
        return signs
