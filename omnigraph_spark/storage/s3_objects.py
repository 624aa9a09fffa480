"""Objects on S3 through boto3: conditional puts for create and replace, typed errors, one client per configuration."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from omnigraph_spark.errors import (
    StorageConditionError,
    StorageError,
    StorageForbiddenError,
    StorageNotFoundError,
    StorageUnreachableError,
)
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.locations import split_s3

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NotFound"}
_FORBIDDEN = {
    "401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken",
    "InvalidToken", "AllAccessDisabled",
}  # fmt: skip
_LOST = {"412", "PreconditionFailed", "ConditionalRequestConflict", "409"}


@contextlib.contextmanager
def _typed(uri: str) -> Iterator[None]:
    """Turn boto3's errors into the typed tree."""
    try:
        yield
    except ClientError as e:
        code = str(e.response.get("Error", {}).get("Code", ""))
        status = str(e.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        known = {code, status}
        if known & _MISSING:
            raise StorageNotFoundError(f"{uri} does not exist ({code})") from e
        if known & _FORBIDDEN:
            raise StorageForbiddenError(f"No permission for {uri} ({code})") from e
        if known & _LOST:
            raise StorageConditionError(f"{uri} was created or changed by somebody else ({code})") from e
        if status.startswith("5"):
            raise StorageUnreachableError(f"The store failed on {uri} ({code})") from e
        raise StorageError(f"{uri}: {code}") from e
    except NoCredentialsError as e:
        raise StorageForbiddenError(f"No credentials for {uri}") from e
    except BotoCoreError as e:
        raise StorageUnreachableError(f"No answer for {uri}: {type(e).__name__}") from e


class S3Objects:
    """The S3 backend; thread-safe, as boto3 clients are."""

    _shared: dict[tuple[tuple[str, str], ...], S3Objects] = {}  # noqa: RUF012 - one cache per process, on purpose
    _guard = threading.Lock()

    def __init__(self, config: StorageConfig) -> None:
        self._client = self._make_client(config, attempts=3)
        # Conditional requests are sent once: the retry of a put that landed would be answered 412 (see objects.py).
        self._once = self._make_client(config, attempts=1)

    @classmethod
    def shared(cls, config: StorageConfig) -> S3Objects:
        """Return this process's backend for a configuration; building a client costs tens of milliseconds."""
        with cls._guard:
            found = cls._shared.get(config.identity())
            if found is None:
                found = cls._shared[config.identity()] = cls(config)
            return found

    @staticmethod
    def _make_client(config: StorageConfig, *, attempts: int) -> S3Client:
        arguments: dict[str, Any] = dict(config.client_arguments())
        arguments.setdefault("region_name", "us-east-1")
        client: S3Client = boto3.session.Session().client(
            "s3",
            config=Config(
                connect_timeout=5,
                read_timeout=30,
                max_pool_connections=32,
                retries={"total_max_attempts": attempts, "mode": "standard"},
                s3={"addressing_style": "path" if config.path_style else "auto"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
            **arguments,
        )
        return client

    def read(self, uri: str) -> tuple[bytes, str]:
        """Return bytes and ETag."""
        bucket, key = split_s3(uri)
        with _typed(uri):
            answer = self._client.get_object(Bucket=bucket, Key=key)
            return answer["Body"].read(), answer["ETag"]

    def write(self, uri: str, data: bytes) -> str:
        """Put unconditionally."""
        bucket, key = split_s3(uri)
        with _typed(uri):
            return self._client.put_object(Bucket=bucket, Key=key, Body=data)["ETag"]

    def put_if_absent(self, uri: str, data: bytes) -> str:
        """Put with ``If-None-Match: *``."""
        bucket, key = split_s3(uri)
        with _typed(uri):
            return self._once.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")["ETag"]

    def replace(self, uri: str, data: bytes, *, tag: str) -> str:
        """Put with ``If-Match``."""
        bucket, key = split_s3(uri)
        with _typed(uri):
            return self._once.put_object(Bucket=bucket, Key=key, Body=data, IfMatch=tag)["ETag"]

    def list(self, uri: str) -> Mapping[str, int]:
        """List objects directly below a prefix with their sizes."""
        bucket, key = split_s3(uri)
        prefix = f"{key.rstrip('/')}/" if key else ""
        found: dict[str, int] = {}
        with _typed(uri):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, Delimiter="/")
            for page in pages:
                for item in page.get("Contents", []):
                    name = item["Key"].removeprefix(prefix)
                    if name:
                        found[name] = item["Size"]
        return found

    def walk(self, uri: str) -> Iterator[tuple[str, int, int]]:
        """Yield every object below a prefix: relative name, size, time of change in microseconds."""
        bucket, key = split_s3(uri)
        prefix = f"{key.rstrip('/')}/" if key else ""
        with _typed(uri):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
                for item in page.get("Contents", []):
                    changed = int(item["LastModified"].timestamp() * 1_000_000)
                    yield item["Key"].removeprefix(prefix), item["Size"], changed

    def delete(self, uri: str) -> None:
        """Delete an object; S3 answers success for an absent one."""
        bucket, key = split_s3(uri)
        with _typed(uri):
            self._client.delete_object(Bucket=bucket, Key=key)
