"""Rows and texts a task must see twice: in memory while small, in a local Arrow file beyond that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.storage.keyhash import hash_text
from omnigraph_spark.write.key_runs import KeyRuns, Positions, Scratch

_MEMORY_BYTES = 32 << 20
_CHUNK_ROWS = 1 << 17


class RowSpill:
    """A sequence of batches of one schema that can be read any number of times."""

    def __init__(self, schema: pa.Schema, scratch: Scratch) -> None:
        self.schema = schema
        self.rows = 0
        self._scratch = scratch
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._waiting_rows = 0
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._path = ""
        self._kept: list[pa.RecordBatch] | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        full = self._waiting_rows >= _CHUNK_ROWS if self._writer is not None else self._waiting_bytes > _MEMORY_BYTES
        if full:
            self._flush()

    def close(self) -> None:
        """Finish writing; reading may begin."""
        if self._writer is None:
            self._kept = self._waiting
            return
        self._flush()
        self._writer.close()
        source = pa.memory_map(self._path)
        reader = pa.ipc.open_file(source)
        self._kept = [reader.get_batch(i) for i in range(reader.num_record_batches)]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read everything, in the order it was added."""
        yield from self._kept or []

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._path = str(self._scratch.path())
            self._writer = pa.ipc.new_file(self._path, self.schema)
        whole = pa.Table.from_batches(self._waiting, schema=self.schema).combine_chunks()
        for batch in whole.to_batches(max_chunksize=_CHUNK_ROWS):
            self._writer.write_batch(batch)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


class TextIndex:
    """Finds texts among many, exactly: candidates by hash, then the texts themselves are compared."""

    def __init__(self, scratch: Scratch, *, texts: RowSpill | None = None, column: str = "id") -> None:
        """Index texts given to ``add``, or a column of rows that a spill keeps anyway."""
        self._keys = KeyRuns(scratch, positions=True)
        self._own = texts is None
        self._texts = texts if texts is not None else RowSpill(pa.schema([(column, pa.string())]), scratch)
        self._column = column
        self._chunks: list[pa.Array] = []
        self._starts = np.empty(0, dtype=np.int64)

    def add(self, texts: pa.Array) -> None:
        """Index the texts of the next rows."""
        self._keys.add(hash_text(texts))
        if self._own:
            self._texts.add(pa.RecordBatch.from_arrays([texts], names=[self._column]))

    def close(self) -> None:
        """Finish; lookups may begin. A spill that was given must be closed by its owner first."""
        self._keys.close()
        if self._own:
            self._texts.close()
        self._chunks = [batch.column(self._column) for batch in self._texts.batches()]
        self._starts = np.cumsum([0, *(len(c) for c in self._chunks)])[:-1].astype(np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> KeyRuns:
        """The hashes of the texts."""
        return self._keys

    def find(self, texts: pa.Array) -> tuple[Positions, Positions]:
        """Return pairs (index into ``texts``, position of the equal indexed text)."""
        asked, at = self._keys.find(hash_text(texts))
        if not len(asked):
            return asked, at
        order = np.argsort(at, kind="stable")
        asked, at = asked[order], at[order]
        equal = pc.equal(texts.take(pa.array(asked)), self.take(at))
        same = equal.to_numpy(zero_copy_only=False).astype(bool)
        return asked[same], at[same]

    def take(self, positions: Positions) -> pa.Array:
        """Return the texts at ascending positions."""
        cuts = [*np.searchsorted(positions, self._starts).tolist(), len(positions)]
        parts: list[pa.Array] = []
        for number, (low, high) in enumerate(itertools.pairwise(cuts)):
            if low < high:
                inside = positions[low:high] - self._starts[number]
                parts.append(self._chunks[number].take(pa.array(inside)))
        return pa.concat_arrays(parts) if parts else pa.array([], pa.string())
