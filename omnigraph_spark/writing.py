"""The writing half of ``Graph``: transactions, one-operation writes and loads. Each is a few lines over ``write/``."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph_spark.errors import OptionError
from omnigraph_spark.manifest.store import normalize_branch
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.values import Commit
from omnigraph_spark.write.draft import WriteIntent
from omnigraph_spark.write.load import LoadMode, LoadResult, Source, load_records
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.settings import WindowSettings
from omnigraph_spark.write.transaction import Data, Transaction


class GraphWrites:
    """What a graph handle can write; ``Graph`` supplies the place and the settings."""

    uri: str
    actor: str | None
    read_only: bool
    _settings: WindowSettings

    @property
    def branch(self) -> str:
        """The branch this handle reads and writes."""
        raise NotImplementedError

    def _begin(self) -> GraphReader:
        raise NotImplementedError

    def transaction(
        self,
        *,
        branch: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        app_id: str | None = None,
        txn_version: int | None = None,
        user_metadata: str | None = None,
        expected_version: int | None = None,
    ) -> Transaction:
        """Start a transaction over any number of tables; its block ends in one graph commit or in none.

        ``app_id`` with a rising ``txn_version`` makes it idempotent: a repeat does nothing and returns the first
        commit. ``expected_version`` refuses the commit when the graph has moved past that version.
        """
        intent = WriteIntent(
            branch=self.branch if branch is None else normalize_branch(branch),
            actor=self.actor if actor is None else actor,
            message=message,
            user_metadata=user_metadata,
            app_id=app_id,
            txn_version=txn_version,
            expected_version=expected_version,
        )
        return Transaction(self._authority(), intent)

    def append(self, type_name: str, data: Data, **intent: object) -> Commit | None:
        """Insert rows of one type in a transaction of its own."""
        with self._single(intent) as tx:
            tx.append(type_name, data)
        return tx.commit_info

    def merge(self, type_name: str, data: Data, **intent: object) -> Commit | None:
        """Insert or replace rows of one type in a transaction of its own."""
        with self._single(intent) as tx:
            tx.merge(type_name, data)
        return tx.commit_info

    def overwrite(self, type_name: str, data: Data, **intent: object) -> Commit | None:
        """Replace all rows of one type in a transaction of its own."""
        with self._single(intent) as tx:
            tx.overwrite(type_name, data)
        return tx.commit_info

    def update(self, type_name: str, *, set: Mapping[str, object], where: str, **intent: object) -> Commit | None:
        """Set properties of the rows a predicate matches, in a transaction of its own."""
        with self._single(intent) as tx:
            tx.update(type_name, set=set, where=where)
        return tx.commit_info

    def delete(
        self, type_name: str, *, where: str | None = None, cascade: bool = True, **intent: object
    ) -> Commit | None:
        """Remove the rows a predicate matches, in a transaction of its own."""
        with self._single(intent) as tx:
            tx.delete(type_name, where=where, cascade=cascade)
        return tx.commit_info

    def load(self, source: Source, *, mode: LoadMode | str, branch: str | None = None, **intent: object) -> LoadResult:
        """Load OmniGraph JSONL records, of any number of types, in one commit.

        ``mode`` is append, merge or overwrite; overwrite replaces the types the records name and no others.
        """
        chosen = LoadMode.parse(mode)
        with self._single({**intent, "branch": branch}) as tx:
            counts = load_records(tx, source, mode=chosen)
        return LoadResult(self.branch if branch is None else branch, chosen.value, counts, tx.commit_info)

    def _single(self, intent: Mapping[str, object]) -> Transaction:
        return self.transaction(**intent)  # type: ignore[arg-type]

    def _authority(self) -> PublishAuthority:
        if self.read_only:
            raise OptionError(
                "This graph handle is read-only", hint="Open the graph without read_only, or without at(), to write."
            )
        return PublishAuthority(self._begin(), self._settings)
