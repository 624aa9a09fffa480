"""The 32-bit identities of types and properties, derived from their names.

Two names with one identity cannot live in one schema, so both the rules and the compiler ask here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["interface", "node", "edge"]

_OFFSET_BASIS = 2166136261
_PRIME = 16777619


def type_id(kind: Kind, *, name: str) -> int:
    """Return the identity of a type."""
    return _fnv1a_32(f"{kind}:{name}")


def property_id(kind: Kind, *, type_name: str, name: str) -> int:
    """Return the identity of a property of a type."""
    return _fnv1a_32(f"{kind}:{type_name}:{name}")


def _fnv1a_32(text: str) -> int:
    value = _OFFSET_BASIS
    for byte in text.encode("utf-8"):
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    # Zero stands for "no identity" on disk.
    return value or 1
