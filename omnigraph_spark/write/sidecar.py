"""The durable records in ``__recovery/``: one JSON document per attempt, named by its operation id.

Listing the directory happens only when somebody did not leave the window cleanly, at a read-write open and on an
explicit call; a steady-state write lists it never (INV-11).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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

    @property
    def is_ours(self) -> bool:
        """True when it carries a full plan; OmniGraph's own records do not."""
        return "plan" in self.document


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

    def read(self, operation_id: str) -> Sidecar | None:
        """Read a record; None when another process has just retired it, an error when it is unreadable or newer."""
        uri = self._uri(operation_id)
        try:
            data = self._objects.read(uri).data
        except StorageNotFoundError:
            return None
        hint = f"Read {uri}, decide what it is, and remove it; reads of the graph are not affected."
        try:
            document = json.loads(data)
        except ValueError as e:
            raise RecoveryError(f"The recovery record {uri} is not readable JSON", hint=hint) from e
        if not isinstance(document, dict) or document.get("operation_id") != operation_id:
            raise RecoveryError(
                f"The recovery record {uri} does not describe the operation it is named after", hint=hint
            )
        version = document.get("schema_version")
        if not isinstance(version, int) or version > SIDECAR_VERSION:
            raise RecoveryError(
                f"The recovery record {uri} has version {version!r}; this release knows up to {SIDECAR_VERSION}",
                hint="Recover with the release that wrote it.",
            )
        return Sidecar(operation_id, optional_text(document.get("branch")) or MAIN, document)

    def _uri(self, operation_id: str) -> str:
        return join(self.root, RECOVERY_DIR, f"{operation_id}{_SUFFIX}")
