"""How long a writer waits, and for what; each an argument, an option and an environment variable."""

from __future__ import annotations

import os
from dataclasses import dataclass

from omnigraph_spark.errors import OptionError


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Seconds; measured on the waiter's own monotonic clock, so no two clocks are ever compared."""

    grace: float = 60.0  # a silent window owner may be taken over after this
    timeout: float = 30.0  # an owner gives its own window up after this, before its first effect
    patience: float = 600.0  # a writer waits this long for its turn

    def __post_init__(self) -> None:
        for name in ("grace", "timeout", "patience"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name} must be a positive number of seconds")

    @classmethod
    def resolve(
        cls, *, grace: float | None = None, timeout: float | None = None, patience: float | None = None
    ) -> WindowSettings:
        """Take arguments, else the environment, else the defaults."""
        return cls(
            grace=_seconds("OMNIGRAPH_WINDOW_GRACE", grace, 60.0),
            timeout=_seconds("OMNIGRAPH_WINDOW_TIMEOUT", timeout, 30.0),
            patience=_seconds("OMNIGRAPH_PATIENCE", patience, 600.0),
        )


def _seconds(variable: str, given: float | None, default: float) -> float:
    if given is not None:
        return float(given)
    text = os.environ.get(variable)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError as e:
        raise OptionError(f"{variable} must be a number of seconds, not {text!r}") from e
