"""The durable records in ``__recovery/``: one JSON document per attempt, named by its operation id.

Listing the directory happens only when somebody did not leave the window cleanly, at a read-write open and on an
explicit call; a steady-state write lists it never (INV-11).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from omnigraph_spark.errors import RecoveryError, StorageNotFoundError
from omnigraph_spark.manifest.layout import MAIN, RECOVERY_DIR
from omnigraph_spark.manifest.rows import optional_text
from omnigraph_spark.storage.locations import join
from omnigraph_spark.storage.objects import ObjectStore
from omnigraph_spark.write.plan import SIDECAR_VERSION, PublishPlan, to_sidecar

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A record as it stands on storage."""

    operation_id: str
    branch: str
    document: Mapping[str, object]
    uri: str = ""

    @property
    def is_ours(self) -> bool:
        """True when it carries a full plan; OmniGraph's own records do not."""
        return "plan" in self.document


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record nobody can act on; it is kept for a person. ``branch`` is None when the file does not even say that."""

    operation_id: str
    branch: str | None
    problem: str
    uri: str

    def concerns(self, branch: str, *, owners: Collection[str] = ()) -> bool:
        """Say whether it stands in the way of a branch: its own, the one whose owner it was, or main if unknown."""
        return (self.branch or MAIN) == branch or self.operation_id in owners

    def error(self) -> RecoveryError:
        """Return the loud form."""
        return RecoveryError(
            self.problem,
            hint=f"Read {self.uri}, decide what it is, and remove it or recover with the release that wrote it; "
            "reads of the graph are not affected.",
        )


class SidecarStore:
    """Reads and writes the records of one graph."""

    def __init__(self, root: str, *, objects: ObjectStore) -> None:
        self.root = root
        self._objects = objects

    def put(self, plan: PublishPlan) -> None:
        """Write an attempt's record; the attempt may not claim the window before this returned."""
        self._objects.write(self._uri(plan.operation_id), to_sidecar(plan, root=self.root))

    def delete(self, operation_id: str) -> None:
        """Remove a record."""
        self._objects.delete(self._uri(operation_id))

    def exists(self, operation_id: str) -> bool:
        """Say whether a record is there, without listing."""
        try:
            self._objects.read(self._uri(operation_id))
        except StorageNotFoundError:
            return False
        return True

    def operation_ids(self) -> list[str]:
        """List the records in name order."""
        names = self._objects.list(join(self.root, RECOVERY_DIR))
        return sorted(n.removesuffix(_SUFFIX) for n in names if n.endswith(_SUFFIX))

    def root_files(self) -> list[str]:
        """List the plain files of the graph's root, e.g. staged schema files."""
        return self._objects.list(self.root)

    def read(self, operation_id: str) -> Sidecar | None:
        """Read a record; None when another process has just retired it, an error when it is unreadable or newer."""
        found = self.examine(operation_id)
        if isinstance(found, BadRecord):
            raise found.error()
        return found

    def examine(self, operation_id: str) -> Sidecar | BadRecord | None:
        """Read a record as it is: good, bad with its reason, or gone."""
        uri = self._uri(operation_id)
        try:
            data = self._objects.read(uri).data
        except StorageNotFoundError:
            return None
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            return BadRecord(operation_id, None, f"The recovery record {uri} is not readable JSON", uri)
        branch = optional_text(document.get("branch")) or MAIN
        version = document.get("schema_version")
        if not isinstance(version, int) or version > SIDECAR_VERSION:
            problem = f"The recovery record {uri} has version {version!r}; this release knows up to {SIDECAR_VERSION}"
            return BadRecord(operation_id, branch, problem, uri)
        if document.get("operation_id") != operation_id:
            problem = f"The recovery record {uri} does not describe the operation it is named after"
            return BadRecord(operation_id, branch, problem, uri)
        return Sidecar(operation_id, branch, document, uri)

    def _uri(self, operation_id: str) -> str:
        return join(self.root, RECOVERY_DIR, f"{operation_id}{_SUFFIX}")
