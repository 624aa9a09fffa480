from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import lance
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server

MEGABYTE = 1 << 20


def together(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run calls in parallel."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: call(), calls))


def test_counts_equal_the_calls_made(proxy: CountingProxy, client: Any, bucket: str) -> None:
    """Every call is counted once, under its kind."""
    for name in ("a", "b", "c"):
        client.put_object(Bucket=bucket, Key=name, Body=name.encode())
    client.get_object(Bucket=bucket, Key="a")["Body"].read()
    client.head_object(Bucket=bucket, Key="b")
    client.list_objects_v2(Bucket=bucket, Prefix="x/")
    client.copy_object(Bucket=bucket, Key="d", CopySource={"Bucket": bucket, "Key": "a"})
    client.delete_object(Bucket=bucket, Key="c")
    client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "b"}]})
    expected = {"PUT": 3, "GET": 1, "HEAD": 1, "LIST": 1, "COPY": 1, "DELETE": 1, "POST": 1}
    assert proxy.counts() == expected
    assert proxy.durable_count() == 6
    assert proxy.serial_hops() == 9
    assert proxy.wait_idle()


def test_a_request_is_described(proxy: CountingProxy, client: Any, bucket: str) -> None:
    """The log names bucket, key, status, sizes and whether the request was conditional."""
    client.put_object(Bucket=bucket, Key="a b/ä", Body=b"12345", IfNoneMatch="*")
    with pytest.raises(ClientError):
        client.put_object(Bucket=bucket, Key="a b/ä", Body=b"1", IfNoneMatch="*")
    assert client.get_object(Bucket=bucket, Key="a b/ä")["Body"].read() == b"12345"
    first, second, third = proxy.requests()
    assert (first.seq, first.method, first.kind, first.bucket) == (1, "PUT", "PUT", bucket)
    assert (first.key, first.status, first.conditional) == ("a b/ä", 200, True)
    assert first.bytes_in >= 5
    assert (second.status, second.upstream_status, second.durable) == (412, 412, True)
    assert (third.bytes_out, third.conditional, third.durable) == (5, False, False)
    assert first.started < first.finished <= second.started


def test_reset_forgets(proxy: CountingProxy, client: Any, bucket: str) -> None:
    """After a reset the log and the counters start again."""
    client.put_object(Bucket=bucket, Key="k", Body=b"")
    proxy.reset()
    assert proxy.requests() == []
    assert proxy.durable_count() == 0
    client.head_object(Bucket=bucket, Key="k")
    assert [(r.seq, r.kind) for r in proxy.requests()] == [(1, "HEAD")]


def test_summary_names_the_part_of_the_graph(proxy: CountingProxy, client: Any, bucket: str) -> None:
    """Requests are counted by kind and by what they touch; a listing by its prefix."""
    client.put_object(Bucket=bucket, Key="g/__manifest/_versions/1", Body=b"")
    client.put_object(Bucket=bucket, Key="g/nodes/0/data/1", Body=b"")
    client.list_objects_v2(Bucket=bucket, Prefix="g/__recovery/", Delimiter="/")
    client.get_object(Bucket=bucket, Key="g/nodes/0/data/1")["Body"].read()
    assert proxy.summary() == {
        ("PUT", "manifest"): 1,
        ("PUT", "data"): 1,
        ("LIST", "recovery"): 1,
        ("GET", "data"): 1,
    }


def test_large_bodies_pass_both_ways(proxy: CountingProxy, client: Any, direct: Any, bucket: str) -> None:
    """Bodies larger than any buffer arrive whole and are counted whole."""
    body = bytes(range(256)) * (5 * MEGABYTE // 256)
    client.put_object(Bucket=bucket, Key="k", Body=body)
    assert direct.get_object(Bucket=bucket, Key="k")["Body"].read() == body
    assert client.get_object(Bucket=bucket, Key="k")["Body"].read() == body
    part = client.get_object(Bucket=bucket, Key="k", Range="bytes=256-511")["Body"].read()
    assert part == bytes(range(256))
    put, get, ranged = proxy.requests()
    assert put.bytes_in >= len(body)
    assert (get.bytes_out, ranged.bytes_out, ranged.status) == (len(body), 256, 206)


def test_chunked_bodies_pass(proxy: CountingProxy, client: Any, direct: Any, bucket: str) -> None:
    """A chunked upload on a kept-alive connection arrives whole, twice."""
    url = urlsplit(client.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "k"}))
    connection = HTTPConnection(url.netloc, timeout=10)
    try:
        for letter in (b"a", b"b"):
            parts = (letter * 300_000 for _ in range(3))
            connection.request("PUT", f"{url.path}?{url.query}", body=parts, encode_chunked=True)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
    finally:
        connection.close()
    assert direct.get_object(Bucket=bucket, Key="k")["Body"].read() == b"b" * 900_000
    assert [r.bytes_in for r in proxy.requests()] == [900_000, 900_000]


def test_latency_is_felt(proxy: CountingProxy, client: Any, bucket: str) -> None:
    """Each sequential request takes at least the latency; parallel ones share it."""
    proxy.set_latency(0.1)
    started = time.monotonic()
    for _ in range(3):
        client.list_objects_v2(Bucket=bucket)
    assert time.monotonic() - started >= 0.3
    proxy.reset()
    started = time.monotonic()
    together([lambda: client.list_objects_v2(Bucket=bucket)] * 10)
    assert 0.1 <= time.monotonic() - started < 0.8
    assert all(r.finished - r.started >= 0.1 for r in proxy.requests())


def test_serial_hops_of_a_known_pattern(proxy: CountingProxy, client: Any, bucket: str) -> None:
    """Three in a row, four together, two in a row: six hops."""
    proxy.set_latency(0.1)
    for _ in range(3):
        client.list_objects_v2(Bucket=bucket)
    together([lambda: client.list_objects_v2(Bucket=bucket)] * 4)
    for _ in range(2):
        client.list_objects_v2(Bucket=bucket)
    assert proxy.counts() == {"LIST": 9}
    assert proxy.serial_hops() == 6


def test_cap_bounds_what_is_in_flight(proxy: CountingProxy, client: Any, bucket: str) -> None:
    """With a cap of 3, twelve parallel requests go in four rounds and never more than three at once."""
    proxy.set_latency(0.05)
    proxy.set_cap(3)
    started = time.monotonic()
    together([lambda: client.list_objects_v2(Bucket=bucket)] * 12)
    assert time.monotonic() - started >= 4 * 0.05
    assert proxy.peak_in_flight() == 3
    proxy.set_cap(None)
    proxy.reset()
    together([lambda: client.list_objects_v2(Bucket=bucket)] * 12)
    assert proxy.peak_in_flight() > 3


def test_fifty_clients_at_once(s3_server: S3Server, proxy: CountingProxy, bucket: str) -> None:
    """Fifty clients with connections of their own each get their own answers, and all are counted."""
    url = urlsplit(proxy.endpoint)

    def work(number: int) -> None:
        client = s3_server.client(endpoint=proxy.endpoint)
        connection = HTTPConnection(url.netloc, timeout=20)
        try:
            target = client.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": f"{number}"})
            for turn in range(10):
                body = f"{number}:{turn}".encode()
                connection.request("PUT", target.removeprefix(proxy.endpoint), body=body)
                connection.getresponse().read()
            assert client.get_object(Bucket=bucket, Key=f"{number}")["Body"].read() == f"{number}:9".encode()
        finally:
            connection.close()
            client.close()

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(work, range(50)))
    assert proxy.counts() == {"PUT": 500, "GET": 50}
    assert all(r.status == 200 for r in proxy.requests())


def test_two_proxies_count_apart(s3_server: S3Server, proxy: CountingProxy, client: Any, bucket: str) -> None:
    """Each proxy in front of one server sees only its own clients."""
    with CountingProxy(s3_server.endpoint) as other:
        second = s3_server.client(endpoint=other.endpoint)
        client.put_object(Bucket=bucket, Key="k", Body=b"1")
        assert second.get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"
        second.close()
        assert (proxy.counts(), other.counts()) == ({"PUT": 1}, {"GET": 1})


def test_lance_goes_through(s3_server: S3Server, proxy: CountingProxy, bucket: str) -> None:
    """Opening a dataset costs one listing and one read, as its documentation says."""
    uri, options = f"s3://{bucket}/g/nodes/0", s3_server.storage_options(endpoint=proxy.endpoint)
    lance.write_dataset(pa.table({"a": list(range(100))}), uri, storage_options=options)
    assert proxy.counts()["PUT"] == 3
    proxy.reset()
    dataset = lance.dataset(uri, storage_options=options)
    assert proxy.summary() == {("LIST", "data"): 1, ("GET", "data"): 1}
    assert dataset.count_rows() == 100
