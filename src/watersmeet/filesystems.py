"""The file systems on which tasks read and write files: local ones, object stores, and what else Arrow knows.

Object stores by the S3 protocol are reached as Spark reaches them, by Hadoop's settings ``fs.s3a.*``.  The driver reads
these once and hands them to its workers in a variable of their environment.  What they leave open, the variables and
files that all programs for S3 use tell: ``AWS_ACCESS_KEY_ID`` and so on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow.fs

#: The variable in which workers find what was given to ``use``.
VARIABLE = "WATERSMEET_S3"
_SETTINGS: dict[str, str] = {}
_S3 = re.compile(r"s3[an]?://([^/?#]+)/*(.*)", re.DOTALL)
_PREFIX, _OF_BUCKET = "fs.s3a.", "fs.s3a.bucket."
_ARGUMENTS = {"access.key": "access_key", "secret.key": "secret_key", "session.token": "session_token"}
#: What ``endpoint.region`` and ``endpoint`` hold where nothing was set.
_ANY_REGION, _ANY_ENDPOINT = "us-east-1", "s3.amazonaws.com"


def use(settings: Mapping[str, str]) -> None:
    """Reach object stores by these settings of Hadoop, in this process; names begin with ``fs.s3a.``."""
    _SETTINGS.clear()
    _SETTINGS.update(settings)


def for_workers() -> str:
    """The value of ``VARIABLE`` for workers, by which they reach what this process does."""
    return json.dumps(_SETTINGS, sort_keys=True)


def is_object_store(path: str) -> bool:
    """Whether a path is on an object store that Arrow reads by the S3 protocol."""
    return _S3.match(path) is not None


def filesystem_of(path: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system of a path or URI, and the path on it."""
    if (found := _S3.fullmatch(path)) is not None:
        bucket, inner = found.groups()
        arguments = s3_arguments(bucket)
        return _s3(json.dumps(arguments, sort_keys=True)), f"{bucket}/{inner}".rstrip("/")
    if "://" in path:
        filesystem, inner = pyarrow.fs.FileSystem.from_uri(path)
        return filesystem, str(inner)
    return pyarrow.fs.LocalFileSystem(), path.removeprefix("file:")


def s3_arguments(bucket: str) -> dict[str, Any]:
    """The arguments of Arrow's file system for a bucket; a setting for it alone comes before one for all."""
    own = f"{_OF_BUCKET}{bucket}."
    settings = _known()
    names = {name.removeprefix(_PREFIX) for name in settings} | {name.removeprefix(own) for name in settings}
    given = {name: settings.get(own + name) or settings.get(_PREFIX + name) or "" for name in names}
    arguments: dict[str, Any] = {ours: given[name] for name, ours in _ARGUMENTS.items() if given.get(name)}
    endpoint = given.get("endpoint", "")
    if endpoint and endpoint != _ANY_ENDPOINT:
        plain = "://" not in endpoint and given.get("connection.ssl.enabled") == "false"
        arguments["scheme"] = "http" if plain or endpoint.startswith("http://") else "https"
        arguments["endpoint_override"] = endpoint.partition("://")[2] or endpoint
        arguments["region"] = _ANY_REGION  # where there is none, any will do
    if given.get("endpoint.region"):
        arguments["region"] = given["endpoint.region"]
    if "Anonymous" in given.get("aws.credentials.provider", ""):
        arguments["anonymous"] = True
    return arguments


def _known() -> dict[str, str]:
    """What this process was told, or, in a worker, what its environment holds."""
    return _SETTINGS or json.loads(os.environ.get(VARIABLE, "{}"))


@cache
def _s3(arguments: str) -> pyarrow.fs.S3FileSystem:
    """Return one file system for all that has the same arguments: it keeps connections open."""
    return pyarrow.fs.S3FileSystem(**json.loads(arguments))
