"""What a read asks for, checked for contradictions before any I/O."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph_spark.errors import OptionError
from omnigraph_spark.options import Options
from omnigraph_spark.read.snapshot import Moment
from omnigraph_spark.schema.catalog import Catalog, EdgeType, NodeType

METADATA_COLUMNS = ("_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version")


@dataclass(frozen=True, slots=True)
class Target:
    """Which table is meant: by kind, or by bare name when that is unambiguous."""

    node: str | None = None
    edge: str | None = None
    type: str | None = None

    def __post_init__(self) -> None:
        given = [n for n in ("node", "edge", "type") if getattr(self, n) is not None]
        if len(given) > 1:
            raise OptionError(
                f"Options {' and '.join(given)} exclude each other",
                hint="Name one node type or one edge type.",
            )
        if not given:
            raise OptionError("No type is named", hint="Set option node, edge or type.")

    def resolve(self, catalog: Catalog) -> NodeType | EdgeType:
        """Find the type in the schema; unknown names list what exists."""
        if self.node is not None:
            return catalog.node(self.node)
        if self.edge is not None:
            return catalog.edge(self.edge)
        return catalog.resolve(self.type or "")


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One read of one type."""

    target: Target
    moment: Moment
    columns: tuple[str, ...] | None = None
    metadata_columns: tuple[str, ...] = ()
    filter: str | None = None
    limit: int | None = None
    batch_size: int = 8192
    split_size: int = 64 << 20
    partitions: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise OptionError("batchSize must be at least 1")
        if self.partitions is not None and self.partitions < 1:
            raise OptionError("partitions must be at least 1")
        if self.filter is not None and not self.filter.strip():
            raise OptionError("The filter is empty", hint="Leave the option out to read all rows.")
        unknown = [c for c in self.metadata_columns if c not in METADATA_COLUMNS]
        if unknown:
            raise OptionError(
                f"Unknown metadata column {unknown[0]!r}", hint=f"Choose from {', '.join(METADATA_COLUMNS)}."
            )


def moment_of(options: Options) -> Moment:
    """Read the time-travel options."""
    return Moment(
        branch=options.require("branch", str),
        version=options.get("versionAsOf", int),
        timestamp=options.get("timestampAsOf", int),
        commit=options.get("commit", str),
    )


def request_of(options: Options) -> ReadRequest:
    """Read the options of a type read."""
    return ReadRequest(
        target=Target(node=options.get("node", str), edge=options.get("edge", str), type=options.get("type", str)),
        moment=moment_of(options),
        columns=options.get("columns", tuple),
        metadata_columns=options.get("metadataColumns", tuple) or (),
        filter=options.get("filter", str),
        limit=options.get("limit", int),
        batch_size=options.require("batchSize", int),
        split_size=options.require("splitSize", int),
        partitions=options.get("partitions", int),
    )
