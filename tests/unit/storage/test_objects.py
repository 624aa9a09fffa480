"""Plain objects: the same laws on a directory and on S3."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from omnigraph_spark.errors import (
    StorageConditionError,
    StorageError,
    StorageForbiddenError,
    StorageNotFoundError,
    StorageUnreachableError,
)
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.counters import OpCounter
from omnigraph_spark.storage.objects import ObjectStore
from omnigraph_spark.storage.seams import Seams
from tests.places import Place
from tests.rig.ports import free_ports
from tests.rig.race import race
from tests.rig.s3_server import S3Server

RACERS = 4
ROUNDS = 8


def _store(place: Place) -> ObjectStore:
    return ObjectStore(StorageConfig.resolve(place.storage))


def _compete(place: Place, tag: str, name: str) -> list[str]:
    """Try to create and to replace one object a round; return the names of what this process won."""
    store, won = _store(place), []
    for i in range(ROUNDS):
        for verb in ("create", "replace"):
            uri = f"{place.uri}/{verb}-{i}"
            try:
                if verb == "create":
                    store.put_if_absent(uri, name.encode())
                else:
                    store.replace(uri, name.encode(), tag=tag)
            except StorageConditionError:
                continue
            won.append(f"{verb}-{i}")
    return won


def test_what_was_written_is_read_back(any_root: Place) -> None:
    """A write is read back whole, and a second write replaces it and changes the tag."""
    store, uri = _store(any_root), f"{any_root.uri}/deep/er/a.json"
    first = store.write(uri, b"one")
    assert (store.read(uri).data, store.read(uri).tag) == (b"one", first)
    assert store.write(uri, b"two") != first
    assert store.read(uri).data == b"two"


def test_an_absent_object_is_not_found(any_root: Place) -> None:
    """Reading what is not there is StorageNotFoundError and names it."""
    with pytest.raises(StorageNotFoundError, match=r"nothing\.json"):
        _store(any_root).read(f"{any_root.uri}/nothing.json")


def test_put_if_absent_refuses_an_existing_object(any_root: Place) -> None:
    """A create never overwrites; the loser gets StorageConditionError and the first bytes stay."""
    store, uri = _store(any_root), f"{any_root.uri}/claim"
    store.put_if_absent(uri, b"first")
    with pytest.raises(StorageConditionError, match="claim"):
        store.put_if_absent(uri, b"second")
    assert store.read(uri).data == b"first"


def test_replace_needs_the_current_tag(any_root: Place) -> None:
    """A conditional replace lands only over what carries the tag."""
    store, uri = _store(any_root), f"{any_root.uri}/claim"
    old = store.write(uri, b"one")
    new = store.replace(uri, b"two", tag=old)
    with pytest.raises(StorageConditionError, match="claim"):
        store.replace(uri, b"three", tag=old)
    assert store.replace(uri, b"four", tag=new)
    assert store.read(uri).data == b"four"


def test_replace_of_an_absent_object_is_refused(any_root: Place) -> None:
    """There is nothing to compare with, so nothing is written."""
    store, uri = _store(any_root), f"{any_root.uri}/claim"
    with pytest.raises(StorageError):
        store.replace(uri, b"two", tag='"0123"')
    assert store.list(any_root.uri) == []


def test_listing_shows_finished_objects_directly_below(any_root: Place) -> None:
    """A listing is sorted, not recursive, and empty for a directory that is not there."""
    store = _store(any_root)
    assert store.list(f"{any_root.uri}/d") == []
    for name in ("d/b", "d/a", "d/sub/c", "e"):
        store.write(f"{any_root.uri}/{name}", b"x")
    store.replace(f"{any_root.uri}/d/a", b"y", tag=store.read(f"{any_root.uri}/d/a").tag)
    assert store.list(f"{any_root.uri}/d") == ["a", "b"]


def test_delete_is_idempotent(any_root: Place) -> None:
    """Deleting removes the object; deleting again is no error."""
    store, uri = _store(any_root), f"{any_root.uri}/a"
    store.write(uri, b"x")
    store.delete(uri)
    store.delete(uri)
    assert store.list(any_root.uri) == []


def test_one_of_many_processes_wins(any_root: Place) -> None:
    """Create and conditional replace are atomic across processes: one winner a round, and its bytes are there."""
    store = _store(any_root)
    tags = {store.write(f"{any_root.uri}/replace-{i}", b"start") for i in range(ROUNDS)}
    names = [f"process {i}" for i in range(RACERS)]
    results = race(partial(_compete, any_root, tags.pop()), names)
    winners = {won: name for name, wins in zip(names, results, strict=True) for won in wins}
    assert sum(len(wins) for wins in results) == len(winners) == 2 * ROUNDS
    assert {won: store.read(f"{any_root.uri}/{won}").data.decode() for won in winners} == winners


def test_a_failed_write_leaves_nothing(local_root: Place) -> None:
    """A fault before the write leaves no object, and no temporary file either."""

    def broken(operation: str, _target: str) -> None:
        if operation == "put":
            raise OSError("unplugged")

    store = ObjectStore(StorageConfig.resolve(), seams=Seams(fault=broken))
    with pytest.raises(OSError, match="unplugged"):
        store.write(f"{local_root.uri}/a", b"x")
    assert not Path(local_root.uri).exists()


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    """Writing where no byte fits is a StorageError about space, and the name stays free."""
    from omnigraph_spark.storage.local_objects import _typed

    with pytest.raises(StorageError, match="No space left") as caught, _typed("/dev/full"):
        Path("/dev/full").write_bytes(b"x")
    assert "Free some space" in caught.value.hint


def test_a_file_in_the_way_of_a_directory_is_not_found(tmp_path: Path) -> None:
    """A path through a plain file does not exist."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageNotFoundError):
        ObjectStore(StorageConfig.resolve()).read(str(tmp_path / "file" / "below"))


def test_missing_permission_is_forbidden(guarded_s3: S3Server) -> None:
    """A stranger may not read and a reader may not write: StorageForbiddenError, and nothing is stored."""
    bucket = guarded_s3.new_bucket()
    admin = ObjectStore(StorageConfig.resolve(guarded_s3.storage_options()))
    admin.write(f"s3://{bucket}/a", b"x")
    stranger = ObjectStore(StorageConfig.resolve(guarded_s3.storage_options(identity="nobody")))
    reader = ObjectStore(StorageConfig.resolve(guarded_s3.storage_options(identity="reader")))
    with pytest.raises(StorageForbiddenError, match="No permission"):
        stranger.read(f"s3://{bucket}/a")
    assert reader.read(f"s3://{bucket}/a").data == b"x"
    with pytest.raises(StorageForbiddenError, match="No permission"):
        reader.put_if_absent(f"s3://{bucket}/b", b"x")
    with pytest.raises(StorageForbiddenError, match="No permission"):
        reader.delete(f"s3://{bucket}/a")
    assert admin.list(f"s3://{bucket}") == ["a"]


def test_a_closed_port_is_unreachable(s3_server: S3Server) -> None:
    """No answer is StorageUnreachableError, may be tried again, and is not mistaken for absence."""
    closed = s3_server.storage_options(endpoint=f"http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(StorageUnreachableError) as caught:
        ObjectStore(StorageConfig.resolve(closed)).read("s3://bucket/a")
    assert caught.value.retryable


def test_every_request_is_counted(any_root: Place) -> None:
    """Each call is one request, counted by what it is about and what it does."""
    counter = OpCounter()
    store = _store(any_root).with_counter(counter)
    store.write(f"{any_root.uri}/_schema.pg", b"x")
    store.read(f"{any_root.uri}/_schema.pg")
    store.list(f"{any_root.uri}/__recovery")
    store.delete(f"{any_root.uri}/a")
    counted = {"schema.put": 1, "schema.get": 1, "recovery.list": 1, "object.delete": 1}
    assert (dict(counter.objects), counter.storage_ops) == (counted, 4)
