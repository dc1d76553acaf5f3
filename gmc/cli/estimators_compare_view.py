"""The table of `gmc estimators compare`."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gmc.comparison.compare import Comparison


def comparison_view(comparison: Comparison) -> Group:
    """One row a rule; below it what the columns mean and which rules could not be measured."""
    fresh = any(row.cosine_on_policy is not None for row in comparison.rows)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("rule", style="bold", no_wrap=True)
    titles = ["norm", "cos is", *(["cos on"] if fresh else []), "w 5%", "w 50%", "w 95%", "kept", "removed", "ESS"]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for row in comparison.rows:
        weights = row.weights
        cosines = [f"{row.cosine_is:.2f}", *([f"{row.cosine_on_policy:.2f}"] if row.cosine_on_policy is not None else [])]
        quantiles = [_short(value) for value in (weights.q05, weights.q50, weights.q95)]
        shares = [f"{weights.kept_share:.2f}", _short(weights.removed_mass), f"{weights.ess_share:.2f}"]
        table.add_row(row.name, _short(row.norm), *cosines, *quantiles, *shares)
    low, middle, high = comparison.log_rho_quantiles
    lines: list[RenderableType] = [
        Text(
            f"{comparison.responses} responses, mean delay {comparison.delay_mean:.1f}; log ρ {low:.2f} / {middle:.2f} / "
            f"{high:.2f} (5, 50, 95 %); ESS of the raw ratios {comparison.ess_share:.2f}"
        ),
        Text(),
        table,
        Text(),
        Text(
            "cos is, cos on: cosine to the gradient of is and the on-policy one. w: weight over advantage, by response. "
            "kept: tokens with a weight. removed: mean of (ρ − w) where positive. ESS: of the weights, as a share.",
            style="dim",
        ),
    ]
    if comparison.fresh_agreement is not None:
        lines.append(Text(f"Two halves of the fresh responses agree with cosine {comparison.fresh_agreement:.2f}."))
    scaled = [f"{row.name} {row.learning_rate_scale:.2f}" for row in comparison.rows if row.learning_rate_scale != 1]
    if scaled:
        lines.append(Text("Learning rate scaled by: " + ", ".join(scaled)))
    lines += [Text(f"Not measured: {name}: {reason}") for name, reason in comparison.not_measured.items()]
    return Group(*lines)


def _short(value: float) -> str:
    """Three digits, in at most seven characters."""
    if value != 0 and not 1e-3 <= abs(value) < 1e4:
        return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:.3g}"
