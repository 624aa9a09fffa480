"""One place turns ``storage.*`` options and the usual ``AWS_*`` environment into what Lance and boto3 want.

Precedence per setting: option, environment, default. Unknown keys pass through to Lance untouched, so a store
feature we have not heard of still works. Values never appear in a repr, a log line or an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from omnigraph_spark.errors import OptionError

# our name -> (accepted spellings, environment variables in order, the key pylance's object store takes)
_KNOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "endpoint": (
        ("endpoint", "endpointurl", "awsendpoint", "awsendpointurl"),
        ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
        "aws_endpoint",
    ),
    "access_key_id": (
        ("accesskeyid", "accesskey", "awsaccesskeyid"),
        ("AWS_ACCESS_KEY_ID",),
        "aws_access_key_id",
    ),
    "secret_access_key": (
        ("secretaccesskey", "secretkey", "awssecretaccesskey"),
        ("AWS_SECRET_ACCESS_KEY",),
        "aws_secret_access_key",
    ),
    "session_token": (
        ("sessiontoken", "token", "awssessiontoken"),
        ("AWS_SESSION_TOKEN",),
        "aws_session_token",
    ),
    "region": (("region", "awsregion"), ("AWS_REGION", "AWS_DEFAULT_REGION"), "aws_region"),
    "allow_http": (("allowhttp", "awsallowhttp"), ("AWS_ALLOW_HTTP",), "allow_http"),
    "path_style": (
        ("pathstyle", "s3forcepathstyle", "pathstyleaccess"),
        ("AWS_S3_FORCE_PATH_STYLE",),
        "path_style",
    ),
}
_SPELLING = {alias: name for name, (aliases, _, _) in _KNOWN.items() for alias in aliases}
_FLAGS = {"allow_http", "path_style"}
_IDENTITY = {"secret_access_key", "session_token"}

# A store that does not answer must become an error within seconds, not within object_store's default 180 s.
_LANCE_DEFAULTS = {"client_max_retries": "5", "client_retry_timeout": "30", "connect_timeout": "5 seconds"}


def _fold(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "").replace(".", "")


def _flag(name: str, value: str) -> bool:
    folded = value.strip().lower()
    if folded in {"true", "1", "yes"}:
        return True
    if folded in {"false", "0", "no", ""}:
        return False
    raise OptionError(f"storage.{name} must be true or false", hint="Correct the storage option.")


@dataclass(frozen=True, slots=True, repr=False)
class StorageConfig:
    """Resolved object-store settings; picklable, secret-free in print."""

    settings: Mapping[str, str] = field(default_factory=dict)
    passthrough: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def resolve(cls, options: Mapping[str, str] | None = None) -> StorageConfig:
        """Build from user options (without the ``storage.`` prefix) and the process environment."""
        settings: dict[str, str] = {}
        passthrough: dict[str, str] = {}
        for key, value in (options or {}).items():
            name = _SPELLING.get(_fold(key))
            if name is None:
                passthrough[key] = str(value)
            else:
                settings[name] = str(value)
        own_identity = "access_key_id" in settings
        for name, (_, variables, _) in _KNOWN.items():
            # A session token belongs to the key it was issued with, never to a key from somewhere else.
            if name in settings or (name in _IDENTITY and own_identity):
                continue
            found = next((os.environ[v] for v in variables if os.environ.get(v)), None)
            if found is not None:
                settings[name] = found
        for name in _FLAGS & settings.keys():
            settings[name] = "true" if _flag(name, settings[name]) else "false"
        return cls(settings=settings, passthrough=passthrough)

    def flag(self, name: str) -> bool:
        """Read a boolean setting."""
        return self.settings.get(name) == "true"

    def lance_options(self) -> dict[str, str]:
        """Return the storage options pylance takes."""
        out = dict(_LANCE_DEFAULTS)
        for name, (_, _, lance_key) in _KNOWN.items():
            if name in self.settings and name not in _FLAGS:
                out[lance_key] = self.settings[name]
        endpoint = self.settings.get("endpoint", "")
        if self.flag("allow_http") or endpoint.startswith("http://"):
            out["allow_http"] = "true"
        if self.flag("path_style") or endpoint:
            out["aws_virtual_hosted_style_request"] = "false"
        out.update(self.passthrough)
        return out

    def client_arguments(self) -> dict[str, object]:
        """Return the keyword arguments of ``boto3.client("s3", ...)``."""
        names = {
            "endpoint": "endpoint_url",
            "access_key_id": "aws_access_key_id",
            "secret_access_key": "aws_secret_access_key",
            "session_token": "aws_session_token",
            "region": "region_name",
        }
        return {names[k]: v for k, v in self.settings.items() if k in names}

    @property
    def path_style(self) -> bool:
        """Custom endpoints rarely resolve bucket host names, so they imply path style."""
        return self.flag("path_style") or bool(self.settings.get("endpoint"))

    def identity(self) -> tuple[tuple[str, str], ...]:
        """Return a hashable identity, for caching clients."""
        return (*sorted(self.settings.items()), *sorted(self.passthrough.items()))

    def __repr__(self) -> str:
        names = ", ".join(sorted([*self.settings, *self.passthrough]))
        return f"StorageConfig(<redacted: {names}>)"

    def __reduce__(self) -> tuple[object, ...]:
        return (StorageConfig, (dict(self.settings), dict(self.passthrough)))

    def frozen(self) -> StorageConfig:
        """Return a copy whose mappings cannot be changed."""
        return StorageConfig(MappingProxyType(dict(self.settings)), MappingProxyType(dict(self.passthrough)))
