"""Plots of the benchmark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def lines_plot(
    path: Path,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    x: str,
    y: str,
    logarithmic: bool = False,
) -> None:
    """Draw one line per series into an SVG file."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "omnigraph"  # the same figures give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    for name, points in series.items():
        axes.plot([p[0] for p in points], [p[1] for p in points], marker="o", label=name)
    if logarithmic:
        axes.set_xscale("symlog")
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
