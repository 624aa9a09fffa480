"""What every benchmark page states: the machine, the versions, the date, and figures as ratios in one run."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from time import perf_counter

Case = tuple[str, Callable[[], object], Callable[[], object]]


def alternate(cases: Sequence[Case], *, repeats: int) -> dict[str, tuple[list[float], list[float]]]:
    """Time (ours, theirs) of each case in turn, so that noise hits both alike, after two rounds of warming up."""
    for _, ours, theirs in [*cases, *cases]:
        ours()
        theirs()
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name, _, _ in cases}
    for _ in range(repeats):
        for name, ours, theirs in cases:
            for slot, run in ((0, ours), (1, theirs)):
                start = perf_counter()
                run()
                times[name][slot].append(perf_counter() - start)
    return times


def machine() -> str:
    """Describe where and with what the figures were taken."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pylance", "pyarrow"))
    today = datetime.now(tz=timezone.utc).date().isoformat()
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}, {packages}; {today}"


def ratio_rows(times: Mapping[str, tuple[list[float], list[float]]], targets: Mapping[str, float]) -> list[str]:
    """Render one table row per case: medians, ratio of medians, range of per-repeat ratios, target."""
    rows = []
    for name, (ours, theirs) in times.items():
        each = [a / b for a, b in zip(ours, theirs, strict=True)]
        ratio = statistics.median(ours) / statistics.median(theirs)
        rows.append(
            f"| {name} | {statistics.median(ours):.2f} s | {statistics.median(theirs):.2f} s | **{ratio:.2f}** "
            f"| {min(each):.2f} to {max(each):.2f} | ≤ {targets[name]:.1f} |"
        )
    return rows
