"""Pytest fixtures of the rig; a conftest names this module in `pytest_plugins`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3 endpoint for the whole run."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def guarded_s3(s3_server: S3Server) -> Iterator[S3Server]:
    """An endpoint that refuses: it knows a reader and a stranger too, whatever `s3_server` is."""
    if s3_server.kind != "external":
        yield s3_server
        return
    with S3Server(own=True) as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """A bucket of this test's own."""
    return s3_server.new_bucket()


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[CountingProxy]:
    """A counting proxy in front of the S3 endpoint, for this test only."""
    with CountingProxy(s3_server.endpoint) as proxy:
        yield proxy
