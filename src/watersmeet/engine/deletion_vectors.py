"""Deletion vectors of Delta tables: which rows of a file are deleted.

A description of the log is a mapping: ``storageType`` (``p``: a file, ``i``: in the description itself, ``rows``: as
``described`` makes it), ``pathOrInlineDv``, and for files ``offset`` and ``sizeInBytes``.  The bytes are a Roaring
bitmap for each 2**32 rows.
"""

from __future__ import annotations

import base64
import uuid
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import ConnectorError, OutageError
from watersmeet.filesystems import filesystem_of, is_unreachable

_MAGIC = 1681511377
_WITHOUT_RUNS, _WITH_RUNS = 12346, 12347
#: So many values make an array larger than a bitmap; so many containers have a table of their places.
_ARRAY_VALUES, _TABLE_CONTAINERS = 4096, 4
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID_LETTERS = 20


def deleted_rows(description: Mapping[str, Any]) -> np.ndarray:
    """Return the numbers of the rows that are deleted, ascending.

    Raises ``ConnectorError`` for what is no deletion vector, and ``OutageError`` where its store does not answer.
    """
    kind, text = description["storageType"], description["pathOrInlineDv"]
    try:
        if kind == "rows":
            bits = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
            return np.flatnonzero(np.unpackbits(bits))
        if kind == "i":
            return _bitmaps(_decoded(text))
        return _bitmaps(_stored(text, int(description.get("offset") or 0), int(description["sizeInBytes"])))
    except (OSError, ValueError, IndexError, pa.ArrowException) as error:
        said = f"the deletion vector {text[:200]} cannot be read: {str(error).splitlines()[0] or type(error).__name__}"
        if is_unreachable(str(error)):
            raise OutageError(said) from None
        raise ConnectorError(said, hint="restore the file, or start the query anew, without its checkpoint") from None


def described(selected: np.ndarray) -> dict[str, Any]:
    """Return a description of the rows that are not selected, where it is known of each whether it is."""
    bits = np.packbits(~selected.astype(bool))
    return {"storageType": "rows", "pathOrInlineDv": base64.b64encode(zlib.compress(bits.tobytes())).decode()}


def with_path(description: Mapping[str, Any], root: str) -> dict[str, Any]:
    """Return a description of the log with the whole path of its file, which may be below the table's folder."""
    if description["storageType"] != "u":
        return dict(description)
    text = description["pathOrInlineDv"]
    prefix, encoded = text[:-_UUID_LETTERS], text[-_UUID_LETTERS:]
    name = f"deletion_vector_{uuid.UUID(bytes=_decoded(encoded))}.bin"
    path = "/".join(part for part in (root, prefix, name) if part)
    return {**description, "storageType": "p", "pathOrInlineDv": path}


def _decoded(text: str) -> bytes:
    """Return the bytes of a text in base 85 with the letters of Z85."""
    return base64.b85decode(text.translate(str.maketrans(_Z85, _B85)))


def _stored(path: str, offset: int, size: int) -> bytes:
    """Return a vector in a file, where its size stands before it and its checksum after it."""
    system, inner = filesystem_of(path.removeprefix("file://"))
    with system.open_input_file(inner) as file:
        file.seek(offset)
        content = bytes(file.read(size + 8))
    if len(content) < size + 8 or int.from_bytes(content[:4], "big") != size:
        raise ValueError("it is cut off, or not where the log says")
    data = content[4:-4]
    if zlib.crc32(data) != int.from_bytes(content[-4:], "big"):
        raise ValueError("its checksum is wrong")
    return data


class _Bytes:
    """Bytes that are read one after the other, as little-endian numbers."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, kind: str, count: int) -> np.ndarray:
        found = np.frombuffer(self._data, kind, count, self._at)
        self._at += found.nbytes
        return found

    def number(self, kind: str) -> int:
        return int(self.take(kind, 1)[0])


def _bitmaps(data: bytes) -> np.ndarray:
    read = _Bytes(data)
    if read.number("<u4") != _MAGIC:
        raise ValueError("it has another format")
    found = [np.zeros(0, np.int64)]
    for _ in range(read.number("<u8")):
        high = read.number("<u4") << 32
        found.append(high + _bitmap(read))
    return np.concatenate(found)


def _bitmap(read: _Bytes) -> np.ndarray:
    cookie = read.number("<u4")
    has_runs = cookie & 0xFFFF == _WITH_RUNS
    if not has_runs and cookie != _WITHOUT_RUNS:
        raise ValueError("it is no Roaring bitmap")
    count = (cookie >> 16) + 1 if has_runs else read.number("<u4")
    flags = read.take("u1", (count + 7) // 8) if has_runs else np.zeros((count + 7) // 8, np.uint8)
    is_run = np.unpackbits(flags, bitorder="little")[:count]
    headers = read.take("<u2", 2 * count).astype(np.int64).reshape(count, 2)
    if not has_runs or count >= _TABLE_CONTAINERS:
        read.take("<u4", count)
    found = [np.zeros(0, np.int64)]
    for (key, less_one), run in zip(headers, is_run, strict=True):
        found.append((key << 16) + _container(read, int(less_one) + 1, bool(run)))
    return np.concatenate(found)


def _container(read: _Bytes, count: int, is_run: bool) -> np.ndarray:
    if is_run:
        runs = read.take("<u2", 2 * read.number("<u2")).astype(np.int64).reshape(-1, 2)
        return np.concatenate([np.zeros(0, np.int64), *(np.arange(start, start + more + 1) for start, more in runs)])
    if count <= _ARRAY_VALUES:
        return read.take("<u2", count).astype(np.int64)
    return np.flatnonzero(np.unpackbits(read.take("u1", 8192), bitorder="little")).astype(np.int64)
