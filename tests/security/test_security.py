"""The promises of docs/security.md that no other test keeps."""

from __future__ import annotations

import ast
import os
import socket
import stat
import struct
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.listening import descendants, listening
from tests.support.workers import processes
from watersmeet.runtime.process_folder import process_folder
from watersmeet.session.spark import settings_for

SOURCES = Path(__file__).parents[2] / "src" / "watersmeet"
#: What makes objects, and so runs code, of bytes.
LOADERS = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "yaml"}
#: The driver pickles a task for its own workers, inside of what Spark pickles.
PICKLES = {"runtime/processor.py"}


@pytest.fixture
def with_workers(spark: SparkSession) -> SparkSession:
    """Spark whose Python workers have started."""
    assert spark.sparkContext.parallelize([1, 2], 2).map(str).collect() == ["1", "2"]
    return spark


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_listens_on_another_address_than_loopback(with_workers: SparkSession) -> None:
    jvm = process_folder().jvm
    assert jvm is not None
    ours = processes(os.getpid())
    found = listening({os.getpid(), *descendants(jvm.pid), *ours.fork_server, *ours.daemons, *ours.workers})
    gateway = with_workers.sparkContext._gateway
    assert gateway is not None
    assert {gateway.gateway_parameters.port, driver_port(with_workers)} <= {port for _, port in found}
    assert [str(address) for address, _ in found if not address.is_loopback] == []


def driver_port(spark: SparkSession) -> int:
    return int(spark.sparkContext.getConf().get("spark.driver.port") or 0)


def test_who_calls_python_s_gateway_must_know_a_token(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert len(gateway.gateway_parameters.auth_token or "") >= 32
    with socket.create_connection(("127.0.0.1", gateway.gateway_parameters.port), timeout=30) as caller:
        caller.sendall(b"r\nu\njava\nrj\ne\n")  # a call without the token
        assert not caller.recv(1 << 16).startswith(b"!y")


def test_who_calls_spark_must_know_a_secret(spark: SparkSession) -> None:
    """A call in Spark's own protocol is taken for the beginning of an authentication, and refused as such."""
    body = bytes(16)
    call = struct.pack(">bqi", 3, 7, len(body)) + body  # a request with a number
    with socket.create_connection(("127.0.0.1", driver_port(spark)), timeout=30) as caller:
        caller.sendall(struct.pack(">q", 8 + len(call)) + call)
        assert b"SaslMessage" in caller.recv(1 << 16)
    assert not spark.sparkContext.getConf().contains("spark.authenticate.secret")


def test_authentication_is_on_for_a_local_spark_unless_the_user_says_otherwise() -> None:
    assert settings_for({"spark.master": "local[2]"})["spark.authenticate"] == "true"
    assert settings_for({"spark.master": "local[2]", "spark.authenticate": "false"})["spark.authenticate"] == "false"
    given = {"spark.master": "local[*]", "spark.authenticate.secret": "mine"}
    assert settings_for(given)["spark.authenticate.secret"] == "mine"
    for master in ("spark://host:7077", "yarn", "k8s://host", "local-cluster[2,1,1024]"):
        assert "spark.authenticate" not in settings_for({"spark.master": master})


def test_there_is_no_web_page(spark: SparkSession) -> None:
    assert spark.sparkContext.uiWebUrl is None


def test_sockets_lie_in_a_folder_of_their_owner(with_workers: SparkSession) -> None:
    folder = process_folder().path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.stat().st_uid == os.getuid()
    assert stat.S_ISSOCK((folder / "fork.sock").stat().st_mode)
    assert with_workers.sparkContext.getConf().get("spark.python.unix.domain.socket.dir") == str(folder)


def test_no_object_is_made_of_bytes_that_are_read() -> None:
    """Nothing of a checkpoint, a source or a message is unpickled or evaluated."""
    files = {str(path.relative_to(SOURCES)): ast.parse(path.read_text()) for path in SOURCES.rglob("*.py")}
    assert {name for name, tree in files.items() if LOADERS & imported(tree)} == PICKLES
    assert {name for name, tree in files.items() if {"eval", "exec", "__import__"} & called(tree)} == set()
    asks = {
        name
        for name, tree in files.items()
        if any(isinstance(each, ast.keyword) and each.arg == "allow_pickle" for each in ast.walk(tree))
    }
    assert asks == set()


def imported(tree: ast.AST) -> set[str]:
    """The first part of the name of each module that is imported."""
    found = {
        alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    return found | {str(node.module).partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def called(tree: ast.AST) -> set[str]:
    """The names of functions that are called by their name alone."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}
