"""Fixtures every test folder shares: a Spark session, and graphs on disk and on S3."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.places import Place
from tests.rig.s3_server import S3Server

pytest_plugins = ["tests.rig.fixtures"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session on two local cores, for the whole run."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warehouse = tmp_path_factory.mktemp("warehouse")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("omnigraph tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
    )
    with warnings.catch_warnings():
        # Starting the JVM forks; Lance warns of that, but the child becomes java at once.
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def local_root(tmp_path: Path) -> Place:
    """A directory that does not exist yet."""
    return Place(str(tmp_path / "graph"))


@pytest.fixture
def s3_root(s3_server: S3Server, bucket: str) -> Place:
    """An unused prefix on S3."""
    return Place(f"s3://{bucket}/pre/graph", s3_server.storage_options())


@pytest.fixture
def local_graph(local_root: Place) -> Place:
    """A graph of example A on disk."""
    return local_root.built()


@pytest.fixture
def s3_graph(s3_root: Place) -> Place:
    """A graph of example A on S3."""
    return s3_root.built()


@pytest.fixture(params=["local", "s3"])
def any_root(request: pytest.FixtureRequest) -> Place:
    """An unused root: the test runs on disk and on S3."""
    root = request.getfixturevalue(f"{request.param}_root")
    assert isinstance(root, Place)
    return root


@pytest.fixture
def any_graph(any_root: Place) -> Place:
    """A graph of example A: the test runs on disk and on S3."""
    return any_root.built()
