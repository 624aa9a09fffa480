from __future__ import annotations

import os
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from tests.rig import s3_server as s3_server_module
from tests.rig.s3_server import S3Server

HOLDER = """
import sys
from tests.rig.proxy import CountingProxy
from tests.rig import s3_server as s3_server_module
from tests.rig.s3_server import S3Server
server = S3Server()
proxy = CountingProxy(server.endpoint)
print(server.pid or 0, proxy.pid, flush=True)
sys.stdin.read()
"""


def refused(call: Any, **arguments: Any) -> int:
    """Return the status with which a call was refused."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return int(caught.value.response["ResponseMetadata"]["HTTPStatusCode"])


def test_create_if_absent_is_exclusive(direct: Any, bucket: str) -> None:
    """Of two PUTs with If-None-Match: * the first lands and the second is told 412."""
    direct.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")
    assert refused(direct.put_object, Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*") == 412
    assert direct.get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"


def test_replace_if_match_is_exclusive(direct: Any, bucket: str) -> None:
    """Of two PUTs with the same If-Match the first lands and the second is told 412."""
    tag = direct.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
    direct.put_object(Bucket=bucket, Key="k", Body=b"2", IfMatch=tag)
    assert refused(direct.put_object, Bucket=bucket, Key="k", Body=b"3", IfMatch=tag) == 412
    assert direct.get_object(Bucket=bucket, Key="k")["Body"].read() == b"2"


def test_identities_are_refused_what_they_may_not_do(guarded_s3: S3Server) -> None:
    """The reader may not write, nobody may not even read."""
    bucket = guarded_s3.new_bucket()
    admin, reader, nobody = (guarded_s3.client(identity=name) for name in ("admin", "reader", "nobody"))
    try:
        admin.put_object(Bucket=bucket, Key="k", Body=b"1")
        assert reader.get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"
        assert reader.list_objects_v2(Bucket=bucket)["KeyCount"] == 1
        assert refused(reader.put_object, Bucket=bucket, Key="k", Body=b"2") == 403
        assert refused(reader.delete_object, Bucket=bucket, Key="k") == 403
        assert refused(nobody.get_object, Bucket=bucket, Key="k") == 403
        assert refused(nobody.list_objects_v2, Bucket=bucket) == 403
    finally:
        for client in (admin, reader, nobody):
            client.close()


def test_a_missing_bucket_is_an_error(direct: Any) -> None:
    """Nothing creates a bucket by accident."""
    assert refused(direct.put_object, Bucket="rig-never-made", Key="k", Body=b"") == 404


def test_storage_options_open_a_dataset(s3_server: S3Server, bucket: str) -> None:
    """Lance reads and writes with the options as given."""
    uri, options = f"s3://{bucket}/t", s3_server.storage_options()
    lance.write_dataset(pa.table({"a": [1, 2]}), uri, storage_options=options)
    assert lance.dataset(uri, storage_options=options).count_rows() == 2


def test_a_given_endpoint_is_used_and_left_running(
    s3_server: S3Server, direct: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the environment variable set nothing is started, and stopping stops nothing."""
    monkeypatch.setenv("OMNIGRAPH_TEST_S3_ENDPOINT", s3_server.endpoint)
    for name, value in s3_server.env().items():
        monkeypatch.setenv(name, value)
    with S3Server() as server:
        assert (server.kind, server.pid, server.endpoint) == ("external", None, s3_server.endpoint)
        made = server.new_bucket()
        with pytest.raises(LookupError):
            server.identity("reader")
    assert direct.list_objects_v2(Bucket=made)["KeyCount"] == 0


class _NoImages(socketserver.StreamRequestHandler):
    """A Docker engine that is alive but fails whatever it is asked to do."""

    def handle(self) -> None:
        head = self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        status, body = ("200 OK", b"OK") if b"_ping" in head else ("500 Internal Server Error", b"no images here")
        self.wfile.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
        self.wfile.write(body)


def test_docker_comes_second_and_is_passed_over_when_it_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An engine that answers is tried before SeaweedFS from PyPI, which serves when the engine cannot."""
    monkeypatch.delenv("OMNIGRAPH_TEST_S3_ENDPOINT", raising=False)
    address = str(tmp_path / "engine.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{address}")
    assert not s3_server_module._engine_answers()
    with socketserver.ThreadingUnixStreamServer(address, _NoImages) as engine:
        serving = threading.Thread(target=engine.serve_forever)
        serving.start()
        try:
            assert s3_server_module._engine_answers()
            with S3Server() as server:
                assert server.kind == "seaweedfs"
                server.new_bucket()
        finally:
            engine.shutdown()
            serving.join()


def test_server_and_proxy_die_with_the_test_process() -> None:
    """After kill -9 of the process that holds them, neither is left."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        pids = [int(word) for word in holder.stdout.readline().split()]
    finally:
        holder.kill()
        holder.communicate()
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids if pid)


def gone(pid: int) -> bool:
    """Whether a process ends within ten seconds."""
    pause, deadline = threading.Event(), time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        pause.wait(0.02)
    return False
