"""Pages of ``docs/`` that are generated from the code: ``python -m omnigraph_spark.reference docs``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from omnigraph_spark.errors import error_classes
from omnigraph_spark.options import options_markdown


def errors_markdown() -> str:
    """Render the error tree: what happened, may it be retried, did it commit, what to do."""
    lines = [
        "# Errors",
        "",
        "Generated from `omnigraph_spark/errors.py` by `make docs`; do not edit by hand.",
        "",
        "Every error has `code`, `retryable`, `outcome` and `hint`. Through Spark only text survives; it starts with",
        "`[CODE]`, and the Graph API re-raises the class. The columns show each class's defaults; an instance may know",
        "better.",
        "",
        "| class | code | parent | retryable | outcome | meaning | next step |",
        "|---|---|---|---|---|---|---|",
    ]
    for cls in error_classes():
        doc = (cls.__doc__ or "").strip().split("\n")[0]
        parent = cls.__bases__[0].__name__
        retry = "yes" if cls.default_retryable else "no"
        lines.append(
            f"| `{cls.__name__}` | `{cls.code}` | `{parent}` | {retry} | `{cls.default_outcome.value}` "
            f"| {doc} | {cls.default_hint} |"
        )
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {"options.md": options_markdown, "errors.md": errors_markdown}


def write_pages(folder: Path) -> None:
    """Write every generated page."""
    for name, render in PAGES.items():
        (folder / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
