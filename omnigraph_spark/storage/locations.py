"""Names of places: how a graph root and the things below it are spelled.

``s3://bucket/prefix`` is S3, everything else is a local path; ``file://`` becomes a path. Local roots are made
absolute, because executors and later processes have another working directory.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from omnigraph_spark.errors import OptionError


def normalize_root(uri: str) -> str:
    """Return the one spelling of a graph root, or refuse what no store of ours can hold."""
    text = str(uri).strip()
    if not text:
        raise OptionError("The graph path is empty", hint="Give a directory or an s3:// URI.")
    scheme = urlsplit(text).scheme if "://" in text else ""
    if scheme in {"s3", "s3a", "s3n"}:
        return "s3://" + text.split("://", 1)[1].rstrip("/")
    if scheme == "file":
        text = unquote(urlsplit(text).path)
    elif scheme:
        raise OptionError(
            f"Storage scheme {scheme!r} is not supported ({text})",
            hint="Use a local path, file:// or s3://.",
        )
    return str(Path(text).expanduser().absolute())


def is_s3(uri: str) -> bool:
    """Say whether a location lives on S3."""
    return uri.startswith("s3://")


def join(root: str, *parts: str) -> str:
    """Append relative parts to a root with forward slashes."""
    return "/".join([root.rstrip("/"), *(part.strip("/") for part in parts)])


def split_s3(uri: str) -> tuple[str, str]:
    """Split an s3:// URI into bucket and key."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def object_path(uri: str) -> str:
    """Return the path an object store reports: no scheme, no bucket, no leading slash."""
    return split_s3(uri)[1] if is_s3(uri) else uri.lstrip("/")
