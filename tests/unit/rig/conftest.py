from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server


@pytest.fixture
def direct(s3_server: S3Server) -> Iterator[Any]:
    """A client that goes straight to the server."""
    client = s3_server.client()
    yield client
    client.close()


@pytest.fixture
def client(s3_server: S3Server, proxy: CountingProxy) -> Iterator[Any]:
    """A client behind the proxy that gives up after two seconds."""
    client = s3_server.client(endpoint=proxy.endpoint, timeout=2.0)
    yield client
    client.close()
