"""Over Spark Connect a plain ``load`` names its graph version by itself (INV-14).

A Connect server forgets analysed plans, 16 a session unless told otherwise, and analyses them anew from their options
alone: a load that names no version would move on. Pyspark has no hook for this, so its client's
``DataFrameReader.load`` is wrapped. The version is asked of the server, by analysis and without a job, because the
client may not reach the storage.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph_spark.errors import OptionError
from omnigraph_spark.options import option_name
from omnigraph_spark.read.metadata import BRANCH_KEY, VERSION_KEY

if TYPE_CHECKING:
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.readwriter import DataFrameReader

_FORMAT = "omnigraph"
_MARK = "_omnigraph_pins"


def pin_loads() -> None:
    """Make loads of our format in this Connect client pin themselves; calling it again does nothing."""
    from pyspark.sql.connect.readwriter import DataFrameReader

    original = DataFrameReader.load
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def load(self: DataFrameReader, path: Any = None, *args: Any, **options: Any) -> DataFrame:  # noqa: ANN401
        # Only builds the plan, and leaves the reader as Spark leaves it; nothing is sent.
        frame = original(self, path, *args, **options)
        given = {k: v for k, v in self._options.items() if v is not None}
        if (self._format or "").lower() != _FORMAT or not moves(given):
            return frame
        asked = original(frame.sparkSession.read.format(_FORMAT).options(**question(given)), path)
        # A copy, so that a later load of the same reader pins anew.
        pinned = copy.copy(self)
        pinned._options = answered(given, asked.schema[0].metadata or {})
        return original(pinned, path)

    setattr(load, _MARK, True)
    DataFrameReader.load = load  # type: ignore[method-assign]


def moves(given: Mapping[str, str]) -> bool:
    """Say whether a read with these options could see another graph version later, and could be told which one."""
    named = {option_name(key): value for key, value in given.items()}
    # A time may lie ahead of the newest commit, so only these two name one version for good.
    if "versionAsOf" in named or "commit" in named:
        return False
    # These two list what there is now and belong to no graph version.
    return named.get("table") not in {"branches", "recoveries"}


def question(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the read whose schema tells the version that the given options mean."""
    kept = {"path", "branch", "timestampAsOf"}
    asked = {k: v for k, v in given.items() if option_name(k) in kept or k.lower().startswith("storage")}
    return {**asked, "table": "tables"}


def answered(given: Mapping[str, str], told: Mapping[str, object]) -> dict[str, str]:
    """Return the given options with the moment they mean replaced by the branch and version the server told."""
    if VERSION_KEY not in told:
        raise OptionError(
            "The Connect server does not tell which graph version it reads",
            hint="Install this version of omnigraph_spark on the server, or give option versionAsOf.",
        )
    rest = {k: v for k, v in given.items() if option_name(k) not in {"branch", "timestampAsOf"}}
    return {**rest, "branch": str(told[BRANCH_KEY]), "versionAsOf": str(told[VERSION_KEY])}
