"""Plain objects under a graph root, on disk or on S3, for the builder's own use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError


@dataclass(frozen=True)
class ObjectFacts:
    """Size and ETag of one object; a local file has no ETag."""

    size: int
    e_tag: str | None


class Store(Protocol):
    """Objects by name relative to the root."""

    root: str

    def object_path(self, name: str) -> str:
        """Return the object-store path: no scheme, no bucket, no leading slash."""

    def exists(self, name: str) -> bool:
        """Whether the object is there."""

    def create(self, name: str, *, text: str) -> None:
        """Write an object that must not exist yet."""

    def write(self, name: str, *, text: str) -> None:
        """Write or replace an object."""

    def facts(self, name: str) -> ObjectFacts:
        """Return an object's size and ETag."""

    def remove_tree(self, name: str) -> None:
        """Remove everything under a directory."""


def open_store(root_uri: str, *, storage_options: Mapping[str, str] | None) -> Store:
    """Return the store for a root: S3 for s3://, else a local directory."""
    if root_uri.startswith("s3://"):
        return S3Store(root_uri.rstrip("/"), options=storage_options or {})
    return LocalStore(root_uri.removeprefix("file://").rstrip("/"))


class LocalStore:
    """A directory."""

    def __init__(self, root: str) -> None:
        self.root = root

    def object_path(self, name: str) -> str:
        """Return the absolute path without its leading slash."""
        return f"{Path(self.root).absolute()}/{name}".lstrip("/")

    def exists(self, name: str) -> bool:
        """Whether the file is there."""
        return self._at(name).exists()

    def create(self, name: str, *, text: str) -> None:
        """Write a file that must not exist yet."""
        self._at(name).parent.mkdir(parents=True, exist_ok=True)
        with self._at(name).open("x", encoding="utf-8", newline="") as file:
            file.write(text)

    def write(self, name: str, *, text: str) -> None:
        """Write a file beside its place, then move it there."""
        target = self._at(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f"{target.name}.tmp.{os.getpid()}")
        beside.write_text(text, encoding="utf-8", newline="")
        beside.replace(target)

    def facts(self, name: str) -> ObjectFacts:
        """Return a file's size."""
        return ObjectFacts(self._at(name).stat().st_size, None)

    def remove_tree(self, name: str) -> None:
        """Remove a directory."""
        shutil.rmtree(self._at(name))

    def _at(self, name: str) -> Path:
        return Path(self.root, name)


class S3Store:
    """A prefix in a bucket."""

    def __init__(self, root: str, *, options: Mapping[str, str]) -> None:
        self.root = root
        self._bucket, _, self._prefix = root.removeprefix("s3://").partition("/")
        self._options = dict(options)

    def object_path(self, name: str) -> str:
        """Return the key."""
        return f"{self._prefix}/{name}".lstrip("/")

    def exists(self, name: str) -> bool:
        """Whether the object is there."""
        try:
            self._call("head_object", Key=self.object_path(name))
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return False
            raise
        return True

    def create(self, name: str, *, text: str) -> None:
        """Write an object that must not exist yet."""
        self._call("put_object", Key=self.object_path(name), Body=text.encode(), IfNoneMatch="*")

    def write(self, name: str, *, text: str) -> None:
        """Write or replace an object."""
        self._call("put_object", Key=self.object_path(name), Body=text.encode())

    def facts(self, name: str) -> ObjectFacts:
        """Return an object's size and ETag."""
        head = self._call("head_object", Key=self.object_path(name))
        return ObjectFacts(head["ContentLength"], head["ETag"])

    def remove_tree(self, name: str) -> None:
        """Remove every object under a prefix."""
        prefix = f"{self.object_path(name)}/"
        while found := self._call("list_objects_v2", Prefix=prefix).get("Contents", []):
            for item in found:
                self._call("delete_object", Key=item["Key"])

    def _call(self, operation: str, **arguments: Any) -> Any:
        # One client per call: nothing is left open when a test forgets the builder.
        client: Any = boto3.client(
            "s3",
            endpoint_url=self._options.get("endpoint"),
            aws_access_key_id=self._options.get("access_key_id"),
            aws_secret_access_key=self._options.get("secret_access_key"),
            region_name=self._options.get("region"),
            config=Config(s3={"addressing_style": "path"}),
        )
        try:
            return getattr(client, operation)(Bucket=self._bucket, **arguments)
        finally:
            client.close()
