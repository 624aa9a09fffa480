"""Opening ``__manifest``: a branch, at a version or at its latest one, folded; and listing branches.

Reading the latest version here is the one "latest" resolution a read or a capture makes (INV-01). A branch exists when
its ref file does: a leftover directory of a deleted branch is not a branch. Versions below a branch's fork point live
in its parent and are read from there.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass

import lance

from omnigraph_spark.errors import FormatError, NotFoundError, OptionError, StorageNotFoundError
from omnigraph_spark.manifest.layout import (
    MAIN,
    MANIFEST_DIR,
    SCHEMA_LOCK_BRANCH,
    STAMP_KEY,
    Layout,
    branch_ref_uri,
    branch_uri,
    layout_for,
)
from omnigraph_spark.manifest.state import GraphState, fold
from omnigraph_spark.storage.lance_io import LanceIO, ScanSpec, branch_names, schema_metadata
from omnigraph_spark.storage.locations import join
from omnigraph_spark.storage.objects import ObjectStore
from omnigraph_spark.storage.parallel import Together

MANIFEST = "__manifest"  # the table key counters use


@dataclass(frozen=True, slots=True)
class BranchRef:
    """A branch and where it left its parent."""

    name: str
    parent: str | None
    parent_version: int | None


@dataclass(frozen=True, slots=True)
class OpenManifest:
    """A manifest dataset handle with its fold."""

    dataset: lance.LanceDataset
    state: GraphState


def normalize_branch(name: str | None) -> str:
    """Return the spelling of a branch name; empty and reserved ones are refused."""
    text = MAIN if name is None else name.strip()
    if not text:
        raise OptionError("The branch name is empty", hint="Name a branch, or leave the option out for main.")
    if text == SCHEMA_LOCK_BRANCH:
        raise OptionError(f"Branch name {text!r} is reserved")
    return text


class ManifestStore:
    """Opens the manifest of one graph."""

    def __init__(self, root: str, *, io: LanceIO, objects: ObjectStore) -> None:
        self.root = root
        self.uri = join(root, MANIFEST_DIR)
        self._io = io
        self._objects = objects

    def open(self, *, branch: str = MAIN, version: int | None = None, layout: Layout | None = None) -> OpenManifest:
        """Open and fold a branch at a version, or at its latest one.

        Pass the ``layout`` of the latest version for time travel: OmniGraph stamps a graph two versions after it
        creates it, so the oldest versions carry no stamp of their own.
        """
        dataset = self.open_dataset(branch=branch, version=version)
        return self.fold(dataset, branch=branch, layout=layout)

    def fold(self, dataset: lance.LanceDataset, *, branch: str, layout: Layout | None = None) -> OpenManifest:
        """Fold an already open manifest handle."""
        if layout is None:
            layout = layout_for(schema_metadata(dataset).get(STAMP_KEY))
        missing = set(layout.arrow_schema().names) - set(dataset.schema.names)
        if missing:
            raise FormatError(f"{self.uri} lacks the columns {sorted(missing)}")
        rows = self._io.read(dataset, ScanSpec(columns=tuple(layout.arrow_schema().names)))
        self._io.counter.count_stage()
        state = fold(rows, layout=layout, branch=branch, graph_version=int(dataset.version))
        return OpenManifest(dataset, state)

    def open_dataset(self, *, branch: str, version: int | None = None) -> lance.LanceDataset:
        """Open the manifest dataset of a branch without folding it."""
        if branch == MAIN:
            self._io.counter.count_stage()
            try:
                return self._io.open(self.uri, table=MANIFEST, version=version)
            except StorageNotFoundError as e:
                raise self._explain_missing(branch, version) from e
        with Together(counter=self._io.counter) as group:
            ref_job = group.start(lambda: self.branch_ref(branch))
            opening = group.start(lambda: self._io.open(branch_uri(self.uri, branch), table=MANIFEST, version=version))
        ref = ref_job.result()
        if ref is None:
            raise self._unknown_branch(branch)
        try:
            return opening.result()
        except StorageNotFoundError as e:
            if version is not None and ref.parent_version is not None and version < ref.parent_version:
                return self.open_dataset(branch=ref.parent or MAIN, version=version)
            raise self._explain_missing(branch, version) from e

    def branches(self) -> list[BranchRef]:
        """List all public branches, main first."""
        dataset = self.open_dataset(branch=MAIN)
        found = [
            BranchRef(name, parent or MAIN, version)
            for name, version, parent in branch_names(dataset)
            if name != SCHEMA_LOCK_BRANCH
        ]
        return [BranchRef(MAIN, None, None), *sorted(found, key=lambda b: b.name)]

    def branch_ref(self, branch: str) -> BranchRef | None:
        """Read a branch's ref; None when the branch does not exist."""
        uri = branch_ref_uri(self.uri, branch)
        try:
            text = self._objects.read(uri).data
        except StorageNotFoundError:
            return None
        try:
            ref = json.loads(text)
            return BranchRef(branch, ref.get("parentBranch") or MAIN, int(ref.get("parentVersion", 0)))
        except (ValueError, AttributeError, TypeError) as e:
            raise FormatError(f"The branch ref {uri} is malformed") from e

    def _explain_missing(self, branch: str, version: int | None) -> NotFoundError:
        if version is None:
            return NotFoundError(
                f"{self.root} is not an OmniGraph graph: it has no {MANIFEST_DIR}",
                hint="Check the path, or create a graph there with Graph.create.",
            )
        latest = int(self.open_dataset(branch=branch).version)
        reason = f"its latest is {latest}" if version > latest else "it was never made or has been cleaned up"
        return NotFoundError(
            f"Branch {branch!r} has no graph version {version}: {reason}",
            hint="Choose a version from history().",
        )

    def _unknown_branch(self, branch: str) -> NotFoundError:
        names = [b.name for b in self.branches()]
        close = difflib.get_close_matches(branch, names, n=1)
        maybe = f"; did you mean {close[0]!r}?" if close else "."
        return NotFoundError(
            f"Branch {branch!r} does not exist{maybe} Existing branches: {', '.join(names)}",
            hint="Choose an existing branch or create it first.",
        )
