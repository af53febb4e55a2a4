"""The file systems on which tasks read and write files: local ones, object stores, and what else Arrow knows.

Object stores by the S3 protocol are reached as Spark reaches them, by Hadoop's settings ``fs.s3a.*``.  The driver reads
these once and hands them to its workers in a variable of their environment.  Anything not set there comes from the
usual variables and files of AWS.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow.fs

#: The variable in which workers find what was given to ``set_s3_settings``.
SETTINGS_VARIABLE = "WATERSMEET_S3"
S3_PREFIX, S3_BUCKET_PREFIX = "fs.s3a.", "fs.s3a.bucket."
#: The settings of Hadoop that count here, without their prefix.
S3_CREDENTIALS = ("access.key", "secret.key", "session.token")
S3_OTHERS = ("endpoint", "endpoint.region", "connection.ssl.enabled", "aws.credentials.provider")

_settings: dict[str, str] = {}
#: Arrow has a syntax of its own for keys and endpoints in a URI; such a URI is left to it.
_S3 = re.compile(r"s3[an]?://([^/?#@]+)(?:/+(?!.*\?(?:region|scheme|endpoint_override)=)(.*))?", re.DOTALL)
_AWS = re.compile(r"(?:https?://)?s3[.-]([a-z]{2}[a-z0-9-]*-\d)\.amazonaws\.com(?:\.cn)?/?")
#: Amazon's client fails so where an answer ends amid its headers.
_CUT_ANSWER = (
    r"(?:Cannot invoke \S+ because the return value of \S*\.services\.s3\.model\.\w+Response\.\w+\(\)\S* is null"
    r"|Change detection policy requires ETag)"
)
#: What Arrow, Hadoop and the package deltalake say of a store that does not answer, or that asks to come back later.
_UNREACHABLE = re.compile(
    r"AWS Error (?:NETWORK_CONNECTION|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|SLOW_DOWN|THROTTLING|REQUEST_TIMEOUT)"
    r"|AWS Error \w+ \(HTTP status (?:5\d\d|429)\)"
    r"|(?:org\.apache\.hadoop|software\.amazon\.awssdk)\.(?s:.*)(?:Connection refused|Connection reset|timed out"
    r"|Status Code: (?:5\d\d|429)\b|NoRouteToHost|UnknownHost|SafeModeException)"
    r"|Unable to execute HTTP request|Premature EOF: expected \d+ bytes"
    r"|Service: S3, Status Code: (?:5\d\d|429)\b|Premature end of (?:Content-Length|chunk)"
    r"|Generic \w+ error(?s:.*)(?:error sending request|end of file before message|connection closed before message"
    r"|error decoding response body|status code\W(?s:.*)\b(?:5\d\d|429) )"
    rf"|{_CUT_ANSWER}"
)
_REASON = re.compile(r"Connection refused|Connection reset|timed out|(?:HTTP status|Status Code:) \d+", re.IGNORECASE)
#: What the package deltalake calls arguments of Arrow's file system.
_DELTA_NAMES = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "region": "AWS_REGION",
}
#: The variables of AWS for another endpoint.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_DEFAULT_REGION, _DEFAULT_ENDPOINT = "us-east-1", "s3.amazonaws.com"


def set_s3_settings(settings: Mapping[str, str]) -> None:
    """Reach object stores by these settings of Hadoop, in this process."""
    _settings.clear()
    _settings.update(settings)


def encoded_s3_settings() -> str:
    """The value of ``SETTINGS_VARIABLE`` for workers, by which they reach what this process does."""
    return json.dumps(_settings, sort_keys=True)


def is_object_store(path: str) -> bool:
    """Whether a path is on an object store that Arrow reads by the S3 protocol."""
    return _S3.fullmatch(path) is not None


def is_unreachable(text: str) -> bool:
    """Whether an error's text says that a file system did not answer, so that a later attempt may succeed."""
    return _UNREACHABLE.search(text) is not None


def reason_of(text: str) -> str:
    """The reason why a file system did not answer, in a few words; empty if the text has none that is known."""
    found = _REASON.search(text)
    return "" if found is None else found[0]


def in_words(said: str) -> str:
    """What a client said, in words where it was none for people."""
    return re.sub(_CUT_ANSWER, "the store's answer was broken off", said)


def filesystem_of(path: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system of a path or URI, and the path on it."""
    if (found := _S3.fullmatch(path)) is not None:
        bucket, inner = found.groups(default="")
        return _s3(bucket, json.dumps(s3_arguments(bucket), sort_keys=True)), f"{bucket}/{inner}".rstrip("/")
    if "://" in path:
        filesystem, inner = pyarrow.fs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", path))
        return filesystem, str(inner)
    return pyarrow.fs.LocalFileSystem(), path.removeprefix("file:")


def s3_arguments(bucket: str) -> dict[str, Any]:
    """The arguments of Arrow's file system for a bucket; a setting for it alone comes before one for all."""
    known = _settings or json.loads(os.environ.get(SETTINGS_VARIABLE, "{}"))

    def setting(name: str) -> str:
        return known.get(f"{S3_BUCKET_PREFIX}{bucket}.{name}") or known.get(S3_PREFIX + name) or ""

    arguments: dict[str, Any] = {}
    if setting("aws.credentials.provider").rpartition(".")[2].startswith("Anonymous"):
        arguments["anonymous"] = True
    elif setting("access.key") and setting("secret.key"):
        arguments |= {name.replace(".", "_"): setting(name) for name in S3_CREDENTIALS if setting(name)}
    endpoint, region = setting("endpoint"), setting("endpoint.region")
    if not endpoint and (endpoint := next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")):
        region = region or os.environ.get("AWS_REGION", "")  # or Arrow would ask AWS for it
    if (of_aws := _AWS.fullmatch(endpoint)) is not None:
        region = region or of_aws[1]
    elif endpoint and endpoint != _DEFAULT_ENDPOINT:
        is_plain = setting("connection.ssl.enabled") == "false" if "://" not in endpoint else endpoint[:5] == "http:"
        arguments["scheme"] = "http" if is_plain else "https"
        arguments["endpoint_override"] = endpoint.partition("://")[2] or endpoint
        region = region or _DEFAULT_REGION  # a store that is not AWS has none, and any will do
    if region:
        arguments["region"] = region
    return arguments


def delta_options(path: str) -> dict[str, str]:
    """The options by which the package deltalake reaches what ``filesystem_of`` reaches; empty if it needs none."""
    found = _S3.fullmatch(path)
    arguments = {} if found is None else s3_arguments(found[1])
    options = {name: str(arguments[given]) for given, name in _DELTA_NAMES.items() if given in arguments}
    if "endpoint_override" in arguments:
        scheme = arguments["scheme"]
        options["AWS_ENDPOINT_URL"] = f"{scheme}://{arguments['endpoint_override']}"
        options["AWS_ALLOW_HTTP"] = str(scheme == "http").lower()
    if arguments.get("anonymous"):
        options["AWS_SKIP_SIGNATURE"] = "true"
    return options


@cache
def _s3(bucket: str, encoded: str) -> pyarrow.fs.S3FileSystem:
    """Return a file system, always the same one for a bucket: it keeps connections open."""
    arguments = json.loads(encoded)
    if "region" not in arguments:
        arguments["region"] = pyarrow.fs.resolve_s3_region(bucket)
    return pyarrow.fs.S3FileSystem(**arguments)
