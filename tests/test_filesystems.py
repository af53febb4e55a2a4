"""Where a path is, and how an object store is reached: by Hadoop's settings, which workers have from the driver."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pyarrow.fs
import pytest

from watersmeet import filesystems
from watersmeet.filesystems import (
    delta_options,
    filesystem_of,
    in_words,
    is_object_store,
    is_unreachable,
    reason_of,
    s3_arguments,
)

STORE = {
    "fs.s3a.endpoint": "http://store:9000",
    "fs.s3a.access.key": "reader",
    "fs.s3a.secret.key": "s3cr3t",
    "fs.s3a.bucket.other.endpoint": "elsewhere:9000",
    "fs.s3a.bucket.other.endpoint.region": "eu-central-1",
    "fs.s3a.bucket.open.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
}
KEYED = {"fs.s3a.bucket.lake.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"}
#: The arguments that come of ``STORE``.
REACHED = {
    "scheme": "http",
    "endpoint_override": "store:9000",
    "region": "us-east-1",
    "access_key": "reader",
    "secret_key": "s3cr3t",
}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    filesystems.set_s3_settings({})


@pytest.mark.parametrize(
    ("path", "is_store"),
    [
        ("s3a://lake/a b/c.parquet", True),
        ("s3://lake", True),
        ("s3n://lake/x", True),
        ("s3://lake/x?endpoint_override=here:9000", False),  # Arrow's own syntax
        ("s3://key:secret@lake/x", False),
        ("s3://lake/what?.parquet", True),
        ("file:/lake/x", False),
        ("hdfs://lake/x", False),
        ("/s3a:/lake", False),
    ],
)
def test_what_is_an_object_store(path: str, is_store: bool) -> None:
    assert is_object_store(path) is is_store


@pytest.mark.parametrize(
    ("settings", "bucket", "expected"),
    [
        ({}, "lake", {}),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, "lake", {}),
        ({"fs.s3a.endpoint.region": "eu-west-1"}, "lake", {"region": "eu-west-1"}),
        (
            STORE,
            "lake",
            REACHED,
        ),
        (
            STORE,
            "other",
            {**REACHED, "scheme": "https", "endpoint_override": "elsewhere:9000", "region": "eu-central-1"},
        ),
        (
            STORE,
            "open",
            {"anonymous": True, "scheme": "http", "endpoint_override": "store:9000", "region": "us-east-1"},
        ),
        ({"fs.s3a.access.key": "reader"}, "lake", {}),
        ({"fs.s3a.endpoint": "https://s3.eu-central-1.amazonaws.com"}, "lake", {"region": "eu-central-1"}),
        (
            {**STORE, "fs.s3a.aws.credentials.provider": "a.AnonymousAWSCredentialsProvider", **KEYED},
            "lake",
            REACHED,
        ),
        (
            {"fs.s3a.endpoint": "store:9000", "fs.s3a.connection.ssl.enabled": "false"},
            "lake",
            {"scheme": "http", "endpoint_override": "store:9000", "region": "us-east-1"},
        ),
    ],
)
def test_how_a_bucket_is_reached(settings: Mapping[str, str], bucket: str, expected: Mapping[str, str]) -> None:
    filesystems.set_s3_settings(settings)
    assert s3_arguments(bucket) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "s3a://lake/a b",
            {
                "AWS_ENDPOINT_URL": "http://store:9000",
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "reader",
                "AWS_SECRET_ACCESS_KEY": "s3cr3t",
            },
        ),
        (
            "s3://open/t",
            {
                "AWS_ENDPOINT_URL": "http://store:9000",
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_SKIP_SIGNATURE": "true",
            },
        ),
        ("az://lake/t", {}),
        ("/lake/t", {}),
    ],
)
def test_how_a_delta_table_is_reached(path: str, expected: Mapping[str, str]) -> None:
    filesystems.set_s3_settings(STORE)
    assert delta_options(path) == expected
    filesystems.set_s3_settings({})
    assert delta_options(path) == {}, "by the variables of AWS"


def test_a_path_in_a_bucket_may_hold_what_has_a_meaning_in_uris() -> None:
    filesystems.set_s3_settings(STORE)
    filesystem, inner = filesystem_of("s3a://lake//a b/100%25#1.parquet")
    assert isinstance(filesystem, pyarrow.fs.S3FileSystem)
    assert inner == "lake/a b/100%25#1.parquet"
    assert filesystem_of("s3a://lake/x")[0] is filesystem


def test_a_worker_reaches_what_its_driver_does() -> None:
    filesystems.set_s3_settings(STORE)
    program = "import json; from watersmeet.filesystems import s3_arguments; print(json.dumps(s3_arguments('lake')))"
    environment = {filesystems.SETTINGS_VARIABLE: filesystems.encoded_s3_settings(), "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(run.stdout) == s3_arguments("lake")


DELTA = (
    "Kernel error -> Generic S3 error\n  ↳ Error performing GET http://store/_delta_log in 100ms, after 1 retries\n  ↳ "
)
HADOOP = "org.apache.hadoop.fs.s3a.AWSClientIOException: getFileStatus on s3a://lake/t: "
S3 = "software.amazon.awssdk.services.s3.model.S3Exception: x (Service: S3, Status Code: "
CUT = (
    'Cannot invoke "java.lang.Long.longValue()" because the return value of '
    '"software.amazon.awssdk.services.s3.model.HeadObjectResponse.contentLength()" is null'
)
SDK = "software.amazon.awssdk.core.exception.SdkClientException: "


@pytest.mark.parametrize(
    "text",
    [
        "When reading 'x': AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Could not connect",
        "When listing 'x': AWS Error SERVICE_UNAVAILABLE during ListObjectsV2 operation: x",
        "When reading 'x': AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body.",
        "When reading 'x': AWS Error SLOW_DOWN during GetObject operation: Reduce your request rate",
        f"{DELTA}HTTP error\n  ↳ error sending request\n  ↳ tcp connect error\n  ↳ Connection refused (os error 111)",
        f"{DELTA}Server returned non-2xx status code\n  \x1b[31m↳\x1b[0m 503 Service Unavailable",
        f"{HADOOP}{SDK}Unable to execute HTTP request: Connect to store:9000 failed: Connection refused",
        f"{HADOOP}{S3}503, Request ID: 1)",
        CUT,
        "`s3a://lake/q/spark/sources/1/.1.tmp': Change detection policy requires ETag",
        "Client error accessing s3://lake/q, failed with: Unable to execute HTTP request: The target server failed",
        "Job aborted.\nCaused by: java.io.EOFException: Premature EOF: expected 45 bytes, but got 0",
        "org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.hdfs.server.namenode.SafeModeException): no",
    ],
)
def test_a_store_that_does_not_answer(text: str) -> None:
    assert is_unreachable(text)


@pytest.mark.parametrize(
    "text",
    [
        "When reading 'x': AWS Error ACCESS_DENIED during HeadObject operation: no",
        "When reading 'x': AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No response body.",
        "When listing 'x': AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation: 503",
        f"{DELTA}Server returned non-2xx status code\n  ↳ 403 Forbidden",
        f"{HADOOP}{S3}403, Request ID: 5)",
        "[Errno 28] No space left on device",
        "connection to server failed: Connection refused",
    ],
)
def test_a_store_that_refuses_and_what_is_no_store(text: str) -> None:
    assert not is_unreachable(text)


def test_an_answer_that_ends_amid_its_headers_is_told_in_words() -> None:
    assert in_words(f"a: {CUT}") == "a: the store's answer was broken off"
    assert in_words("no") == "no"


def test_the_reason_in_a_few_words() -> None:
    assert reason_of(f"{HADOOP}{SDK}Unable to execute HTTP request: Connect to a failed: Connection refused (x)") == (
        "Connection refused"
    )
    assert reason_of(f"{HADOOP}{S3}503, Request ID: 1)") == "Status Code: 503"
    assert reason_of("no") == ""


def test_an_endpoint_may_be_in_the_variables_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "_settings", {})
    monkeypatch.delenv(filesystems.SETTINGS_VARIABLE, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    found = {"scheme": "http", "endpoint_override": "127.0.0.1:9000", "region": "eu-west-1"}
    assert filesystems.s3_arguments("lake") == found
    monkeypatch.setattr(filesystems, "_settings", {"fs.s3a.endpoint": "https://store:1"})
    assert filesystems.s3_arguments("lake")["endpoint_override"] == "store:1"
