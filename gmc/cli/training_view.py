"""What a person sees of a training run: the sampling before the first update on a bar of its own, then the updates."""

from contextlib import ExitStack

from gmc.cli.output import write_line
from gmc.cli.progress import Bar, progress_bar
from gmc.training.loop import Observer

LEGEND = (
    "shown an update: mean reward; delay, how many updates old its rollouts are; ESS, effective sample size (1: on-policy); "
    "capped, share of groups whose weights the rule cuts; grad, gradient norm (all in docs/metrics.md)"
)


class TrainingView(Observer):
    """Draws what is sampled before the first update, then updates with their reward. A context manager."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._bar: Bar | None = None
        self._filling = False
        self._version = self._planned = 0
        self._sampled = self._scored = 0
        self._last = ""

    def __enter__(self) -> "TrainingView":
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def opened(self, version: int, planned_updates: int, responses_to_fill: int | None) -> None:
        """Start the first bar, where anything is left to do."""
        self._version, self._planned = version, planned_updates
        if version == planned_updates:
            return
        self._filling = bool(responses_to_fill)
        if responses_to_fill:
            write_line(
                f"responses to sample before the first update: {responses_to_fill}, by the policy that training starts from: "
                "updates use them until those of newer versions are due"
            )
            self._bar = self._open.enter_context(progress_bar("sample", responses_to_fill, "responses"))
        else:
            self._show_updates()

    def generated(self, responses: int) -> None:
        """Count sampled responses until the next update; the last update's numbers stay in front."""
        assert self._bar is not None
        if self._filling:
            self._bar.advance(responses)
        else:
            self._sampled += responses
            self._bar.advance(0, f"{self._last}sampling: {self._sampled} responses")

    def scored(self, responses: int) -> None:
        """Count answers to held-out problems until the update is shown."""
        self._scored += responses
        assert self._bar is not None
        self._bar.advance(0, f"{self._last}held-out answers: {self._scored}")

    def updated(self, update: int, metrics: dict[str, float]) -> None:
        """Show an update's numbers."""
        first = self._filling
        if first:  # the bar begins with this update behind it: how long it took was not measured
            self._open.close()
            self._filling = False
            self._version += 1
            self._show_updates()
        assert self._bar is not None
        self._sampled = self._scored = 0
        self._last = _reward_and_delay(metrics)
        self._bar.advance(0 if first else 1, _in_short(metrics))

    def _show_updates(self) -> None:
        write_line(LEGEND)
        self._bar = self._open.enter_context(progress_bar("train", self._planned, "updates", done=self._version))


def _reward_and_delay(metrics: dict[str, float]) -> str:
    """The delay is left out where it is not known, as of imported rollouts without a start version."""
    delay = metrics.get("delay/mean")
    return f"reward {metrics['reward/mean']:.2f}  " + ("" if delay is None else f"delay {delay:.0f}  ")


def _in_short(metrics: dict[str, float]) -> str:
    return (
        f"{_reward_and_delay(metrics)}ESS {metrics['ratio/ess_share']:.2f}  "
        f"capped {metrics['ratio/groups_capped_share']:.2f}  grad {metrics['optimizer/gradient_norm']:.2g}  "
        f"{metrics['time/tokens_per_second']:.0f} tok/s"
    )
