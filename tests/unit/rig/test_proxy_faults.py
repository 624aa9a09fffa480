from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, ReadTimeoutError

from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server


@pytest.fixture
def hasty(s3_server: S3Server, proxy: CountingProxy) -> Iterator[Any]:
    """A client behind the proxy that gives up after 0.3 seconds."""
    client = s3_server.client(endpoint=proxy.endpoint, timeout=0.3)
    yield client
    client.close()


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    """A pool for calls that do not come back by themselves."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


def keys(direct: Any, bucket: str) -> list[str]:
    """Return what the server really holds, in order."""
    return [item["Key"] for item in direct.list_objects_v2(Bucket=bucket).get("Contents", [])]


def put(client: Any, bucket: str, key: str) -> None:
    """Write a small object."""
    client.put_object(Bucket=bucket, Key=key, Body=key.encode())


@pytest.mark.parametrize("stored", [True, False])
def test_stop_after_hangs(proxy: CountingProxy, hasty: Any, direct: Any, bucket: str, stored: bool) -> None:
    """Requests before the k-th pass, it and later ones get no answer; `stored` decides what is kept."""
    proxy.stop_after(2, stored=stored)
    put(hasty, bucket, "one")
    hasty.head_object(Bucket=bucket, Key="one")
    with pytest.raises(ReadTimeoutError):
        put(hasty, bucket, "two")
    assert proxy.wait_fired()
    with pytest.raises(ReadTimeoutError):
        hasty.head_object(Bucket=bucket, Key="one")
    with pytest.raises(ReadTimeoutError):
        put(hasty, bucket, "three")
    assert keys(direct, bucket) == (["one", "two"] if stored else ["one"])
    statuses = [(r.kind, r.status, r.upstream_status) for r in proxy.requests()]
    dead = [("HEAD", 0, 0), ("PUT", 0, 0)]
    assert statuses == [("PUT", 200, 200), ("HEAD", 200, 200), ("PUT", 0, 200 if stored else 0), *dead]


@pytest.mark.parametrize("stored", [True, False])
def test_stop_after_resets(proxy: CountingProxy, client: Any, direct: Any, bucket: str, stored: bool) -> None:
    """In reset mode the client learns at once that the connection is gone."""
    proxy.stop_after(1, stored=stored, mode="reset")
    started = time.monotonic()
    for key in ("one", "two"):
        with pytest.raises(HTTPClientError):
            put(client, bucket, key)
    assert time.monotonic() - started < 1.5
    assert keys(direct, bucket) == (["one"] if stored else [])


def test_heal_cuts_what_hangs_and_lets_new_requests_pass(
    proxy: CountingProxy, client: Any, direct: Any, bucket: str, background: ThreadPoolExecutor
) -> None:
    """After `heal` a hanging call fails at once and the next one works."""
    proxy.stop_after(1, stored=False)
    hanging = background.submit(put, client, bucket, "one")
    assert proxy.wait_fired()
    proxy.heal()
    assert isinstance(hanging.exception(timeout=1.5), BotoCoreError)
    put(client, bucket, "two")
    assert keys(direct, bucket) == ["two"]


def test_drop_ack_loses_one_answer(proxy: CountingProxy, client: Any, direct: Any, bucket: str) -> None:
    """The k-th write is stored though its client sees an error; everything after works."""
    proxy.drop_ack(2)
    put(client, bucket, "one")
    with pytest.raises(HTTPClientError):
        put(client, bucket, "two")
    put(client, bucket, "three")
    assert keys(direct, bucket) == ["one", "three", "two"]
    assert [r.status for r in proxy.requests()] == [200, 0, 200]


def test_drop_ack_of_a_delete(proxy: CountingProxy, client: Any, direct: Any, bucket: str) -> None:
    """A delete is durable too: it happens though its answer is lost."""
    put(client, bucket, "one")
    proxy.drop_ack(1)
    with pytest.raises(HTTPClientError):
        client.delete_object(Bucket=bucket, Key="one")
    assert keys(direct, bucket) == []


@pytest.mark.parametrize("status", [500, 503])
@pytest.mark.parametrize("stored", [True, False])
def test_fail_answers_with_an_error(
    proxy: CountingProxy, client: Any, direct: Any, bucket: str, status: int, stored: bool
) -> None:
    """The k-th write is answered with the error; `stored` alone decides whether it happened."""
    proxy.fail(2, status=status, stored=stored)
    put(client, bucket, "one")
    with pytest.raises(ClientError) as caught:
        put(client, bucket, "two")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    put(client, bucket, "three")
    assert keys(direct, bucket) == (["one", "three", "two"] if stored else ["one", "three"])


def test_faults_can_be_aimed(proxy: CountingProxy, client: Any, direct: Any, bucket: str) -> None:
    """A fault counts only requests whose key holds its text, and may last several requests."""
    proxy.fail(1, status=503, times=2, key="__manifest")
    put(client, bucket, "data")
    for _ in range(2):
        with pytest.raises(ClientError):
            put(client, bucket, "__manifest/1")
    put(client, bucket, "__manifest/1")
    assert keys(direct, bucket) == ["__manifest/1", "data"]


def test_reads_can_fail_too(proxy: CountingProxy, client: Any, bucket: str) -> None:
    """A fault may be set for other kinds than durable ones."""
    put(client, bucket, "one")
    proxy.set_fault("fail", status=503, kinds=["GET"])
    with pytest.raises(ClientError):
        client.get_object(Bucket=bucket, Key="one")
    assert client.get_object(Bucket=bucket, Key="one")["Body"].read() == b"one"


def test_pause_holds_until_release(
    proxy: CountingProxy, client: Any, direct: Any, bucket: str, background: ThreadPoolExecutor
) -> None:
    """A held write is not stored before its release; others pass meanwhile."""
    proxy.pause(kinds=["PUT"], key="held/")
    calls: list[Future[None]] = [background.submit(put, client, bucket, f"held/{n}") for n in range(2)]
    assert proxy.wait_held(2)
    put(client, bucket, "free")
    assert keys(direct, bucket) == ["free"]
    proxy.release(1)
    assert proxy.held() == 1
    proxy.release()
    for call in calls:
        call.result(timeout=5)
    put(client, bucket, "held/after")
    assert len(keys(direct, bucket)) == 4
    assert proxy.held() == 0


def test_wait_held_gives_up(proxy: CountingProxy) -> None:
    """A barrier nobody reaches is reported, not waited for without end."""
    proxy.pause()
    assert not proxy.wait_held(timeout=0.05)


def test_an_aborted_upload_is_not_stored(proxy: CountingProxy, client: Any, direct: Any, bucket: str) -> None:
    """A client that dies in the middle of a body leaves nothing behind, and the proxy goes idle."""
    url = urlsplit(client.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "one"}))
    head = f"PUT {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: 1000000\r\n\r\n"
    with socket.create_connection((url.hostname, url.port or 80), timeout=5) as sock:
        sock.sendall(head.encode() + b"x" * 500_000)
    put(client, bucket, "two")
    assert proxy.wait_idle()
    assert keys(direct, bucket) == ["two"]
    aborted = proxy.requests()[0]
    assert (aborted.kind, aborted.status, aborted.upstream_status) == ("PUT", 0, 0)


def test_a_client_that_gives_up_does_not_block_the_rest(
    proxy: CountingProxy, hasty: Any, client: Any, bucket: str, background: ThreadPoolExecutor
) -> None:
    """When the client of a held request is gone, releasing it leads to an idle proxy that works."""
    proxy.pause(kinds=["GET"])
    call = background.submit(hasty.get_object, Bucket=bucket, Key="none")
    assert proxy.wait_held()
    assert isinstance(call.exception(timeout=5), ReadTimeoutError)
    proxy.heal()
    assert proxy.wait_idle()
    put(client, bucket, "two")
