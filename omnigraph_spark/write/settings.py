"""How long a writer waits, and for what, and how far upkeep may lag; each an option and an environment variable."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from omnigraph_spark.errors import OptionError


@dataclass(frozen=True, slots=True)
class UpkeepLimits:
    """How many fragments a written table, and how many versions a branch, may have; None is no limit."""

    warn_fragments: int | None = 1_000
    refuse_fragments: int | None = 10_000
    warn_versions: int | None = 10_000
    refuse_versions: int | None = None

    @classmethod
    def resolve(cls, **given: int | None) -> UpkeepLimits:
        """Take arguments, else the environment, else the defaults; 0 is no limit."""
        default = cls()
        chosen = {name: _count(name, given.get(name), getattr(default, name)) for name in cls.__slots__}
        return cls(**chosen)


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Seconds; measured on the waiter's own monotonic clock, so no two clocks are ever compared."""

    grace: float = 60.0  # a silent window owner may be taken over after this
    timeout: float = 30.0  # an owner gives its own window up after this, before its first effect
    patience: float = 600.0  # a writer waits this long for its turn
    limits: UpkeepLimits = field(default_factory=UpkeepLimits)

    def __post_init__(self) -> None:
        for name in ("grace", "timeout", "patience"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name} must be a positive number of seconds")

    @classmethod
    def resolve(
        cls,
        *,
        grace: float | None = None,
        timeout: float | None = None,
        patience: float | None = None,
        limits: UpkeepLimits | None = None,
    ) -> WindowSettings:
        """Take arguments, else the environment, else the defaults."""
        return cls(
            grace=_seconds("OMNIGRAPH_WINDOW_GRACE", grace, 60.0),
            timeout=_seconds("OMNIGRAPH_WINDOW_TIMEOUT", timeout, 30.0),
            patience=_seconds("OMNIGRAPH_PATIENCE", patience, 600.0),
            limits=limits if limits is not None else UpkeepLimits.resolve(),
        )


def _count(name: str, given: int | None, default: int | None) -> int | None:
    variable = f"OMNIGRAPH_{name.upper()}"
    text = os.environ.get(variable) if given is None else str(given)
    if text is None:
        return default
    if not text.strip().isdigit():
        raise OptionError(f"{variable} must be a whole number, or 0 for no limit, not {text!r}")
    return int(text) or None


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
