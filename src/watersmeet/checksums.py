"""Checksums of what checkpoints and catalogues hold: bytes that have changed are noticed, and never computed with.

A JSON object carries its own: ``{…,"checksum":"…"}``, over all that stands before it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from enum import Enum
from typing import Any

_BYTES = 8
_LONGEST_SEAL = 64
_SEAL = re.compile(rb',\s*"checksum":\s*"([0-9a-f]{16})"\s*\}\s*\Z')


class DamageError(ValueError):
    """The bytes are not what was written."""


def checksum(parts: Iterable[bytes]) -> str:
    """The checksum of the parts, one after the other, in 16 digits."""
    digest = hashlib.blake2b(digest_size=_BYTES)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def sealed(text: str) -> bytes:
    """The text of a JSON object with at least one member, with its checksum as the last one."""
    body = text.rstrip().encode()[:-1].rstrip()
    return body + f',"checksum":"{checksum([body])}"}}'.encode()


class Seal(Enum):
    """What the checksum of an object says: there is none, as earlier versions wrote none; it is right; it is wrong."""

    ABSENT = "absent"
    RIGHT = "right"
    WRONG = "wrong"


def read_sealed(text: bytes) -> tuple[dict[str, Any], Seal]:
    """The members of a JSON object without its checksum, and what that says.

    Raises ``DamageError`` if the text is no JSON object.  A caller looks at the object's version before it trusts the
    seal: a later version may seal otherwise.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise DamageError("it is not JSON") from None
    if not isinstance(fields, dict):
        raise DamageError("it is not a JSON object")
    if fields.pop("checksum", None) is None:
        return fields, Seal.ABSENT
    found = _SEAL.search(text, max(0, len(text) - _LONGEST_SEAL))
    is_right = found is not None and found[1].decode() == checksum([text[: found.start()]])
    return fields, Seal.RIGHT if is_right else Seal.WRONG
