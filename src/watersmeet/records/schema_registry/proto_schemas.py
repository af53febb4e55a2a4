"""Protobuf schemas: the text of a ``.proto`` file, compiled by ``protoc`` (from the package grpcio-tools)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from watersmeet.errors import WatersmeetError
from watersmeet.records.schema_registry.client import Schema

_FILE = "watersmeet_schema.proto"
_COMPILE_SECONDS = 60.0


class ProtoError(Exception):
    """A schema cannot be compiled, or has no such message; the text says why."""


@lru_cache(maxsize=1_000)
def compiled(schema: Schema) -> FileDescriptor:
    """The file that a schema is; raises ``ProtoError``.  A process compiles a schema once."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(_descriptors(schema)).file:
        pool.Add(file)
    found: FileDescriptor = pool.FindFileByName(_FILE)
    return found


def _descriptors(schema: Schema) -> bytes:
    """Compile a schema in a folder of its own, in which those that it imports have their names."""
    with tempfile.TemporaryDirectory(prefix="watersmeet-proto-") as name:
        folder = Path(name)
        for file, text in (*schema.references, (_FILE, schema.text)):
            path = PurePosixPath(file)
            if path.is_absolute() or ".." in path.parts or "\\" in file or not path.parts:
                raise ProtoError(f"it imports a file named {file!r}")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        target = folder / "descriptors"
        command = [sys.executable, "-m", "grpc_tools.protoc", "--proto_path=.", "--include_imports"]
        try:
            done = subprocess.run(
                [*command, f"--descriptor_set_out={target.name}", _FILE],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_COMPILE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WatersmeetError(f"protoc, which compiles the schemas of Protobuf, did not run: {error}") from None
        if done.returncode:
            raise ProtoError(_said(done.stderr))
        return target.read_bytes()


def _said(text: str) -> str:
    lines = [line.removeprefix(f"{_FILE}:") for line in text.splitlines() if "warning:" not in line]
    return "; ".join(lines[:3]) or "protoc gave no reason"


def message_at(file: FileDescriptor, path: Sequence[int]) -> Descriptor:
    """The message at a path: its number in the file, and in each message around it."""
    messages = list(file.message_types_by_name.values())
    found: Descriptor | None = None
    for number in path:
        if not 0 <= number < len(messages):
            raise ProtoError(f"it has no message at {', '.join(map(str, path))}")
        found = messages[number]
        messages = list(found.nested_types)
    assert found is not None
    return found


def named_message(file: FileDescriptor, name: str | None) -> tuple[Descriptor, tuple[int, ...]]:
    """The message of that name, with or without its package, and its path; without a name the first one."""
    known = list(_messages(list(file.message_types_by_name.values()), ()))
    if not known:
        raise ProtoError("it has no message")
    if name is None:
        return known[0]
    for message, path in known:
        if name in (message.full_name, message.full_name.removeprefix(f"{file.package}.")):
            return message, path
    names = ", ".join(message.full_name for message, _ in known)
    raise ProtoError(f"it has no message {name}, but {names}")


def _messages(messages: Sequence[Descriptor], within: tuple[int, ...]) -> Iterator[tuple[Descriptor, tuple[int, ...]]]:
    for number, message in enumerate(messages):
        path = (*within, number)
        yield message, path
        yield from _messages(list(message.nested_types), path)
