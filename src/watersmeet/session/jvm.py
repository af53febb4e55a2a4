"""The JVM that Watersmeet starts for a new Spark session: its temporary files, and what it writes to the terminal."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from logging import LogRecord
from pathlib import Path
from socketserver import BaseServer
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from watersmeet.connectors.packages import download_failure, not_loaded
from watersmeet.errors import ConfigError, WatersmeetError
from watersmeet.runtime.masters import cores_of_local_cluster
from watersmeet.runtime.process_folder import process_folder
from watersmeet.session.class_archive import recording_options, sharing_options

#: Avro allocates as many bytes as a record declares for a text, by default up to 2 GB, before it reads them: a record
#: of five bytes could end the JVM.
AVRO_LIMITS = tuple(f"-Dorg.apache.avro.limits.{kind}.maxLength={64 << 20}" for kind in ("string", "bytes"))
#: Where Spark listens that has no machines but this one.
LOOPBACK = "127.0.0.1"
_LAST_WORDS_SECONDS = 5.0
_LAST_WRITES_SECONDS = 120.0


def start_jvm(
    settings: Mapping[str, str], packages: Sequence[str], record: Path | None = None, output: int | None = None
) -> None:
    """Start the JVM of this process, which downloads ``packages`` and keeps them while it lives.

    The JVM outlives its sessions: a later session uses it too, with the packages that it has.  What it reports about
    downloads is not printed.  Does nothing under spark-submit, which has started a JVM already.

    With ``record`` the JVM writes an archive of its classes to that path when it ends (class_archive.py).  ``output``
    is the descriptor to which it and its workers print (None: our standard output and error).

    Raises ``ConfigError`` if a running JVM lacks a package, ``ConnectorError`` if one cannot be downloaded and
    ``WatersmeetError`` if the JVM does not start.
    """
    if SparkContext._gateway is not None:
        if missing := not_loaded(SparkContext._jvm, packages):
            raise ConfigError(
                f"{', '.join(missing)} cannot be loaded: this process has started Spark before, without it",
                hint="connect with these packages first, in a new Python process",
            )
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    conf = SparkConf()
    for name, value in settings.items():
        if value:
            conf.set(name, value)
    folder = process_folder()
    options: dict[str, Any] = {"pass_fds": [folder.lock]}
    if output is not None:
        options["stdout"] = options["stderr"] = output
    errors = 2 if output is None else output
    held_back = _HeldBack(errors) if packages else None
    if held_back is not None:
        options["stderr"] = held_back.target
    try:
        archive = recording_options(record) if record is not None else sharing_options()
        with _environment_of_jvm(folder.path, archive, settings["spark.master"]):
            gateway = launch_gateway(conf, popen_kwargs=options)  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - the gateway raises bare exceptions if the JVM does not start
        text = held_back.all() if held_back is not None else ""
        if (failure := download_failure(text)) is None:
            os.write(errors, text.encode())
        raise failure or not_started(error) from None
    if held_back is not None:
        held_back.pass_on()
    SparkContext._ensure_initialized(gateway=gateway)
    jvm = gateway.jvm
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(folder.path)))
    folder.jvm, folder.port = gateway.proc, gateway.gateway_parameters.port


def not_started(error: Exception) -> WatersmeetError:
    """The error to raise if Spark does not start, with Spark's own reason if its JVM runs."""
    if isinstance(error, Py4JJavaError):
        return WatersmeetError(
            f"Spark did not start: {_first_line(str(error.java_exception.getMessage() or error.java_exception))}",
            hint="is the master right, and does every setting in config have a value that Spark allows?",
        )
    return WatersmeetError(
        f"Spark did not start: {_first_line(str(error)) or type(error).__name__}",
        hint="is there a Java 17 or newer (JAVA_HOME)?",
    )


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def silence_end_of_jvm(accumulators: BaseServer) -> None:
    """Keep PySpark and py4j from printing stack traces when the JVM ends: our own errors report that in a sentence.

    ``accumulators`` is the server to which the JVM reports.
    """
    report = accumulators.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            report(request, client_address)

    accumulators.handle_error = handle_error  # type: ignore[method-assign]
    for logger in (None, "py4j.clientserver"):  # py4j also logs to the root logger
        logging.getLogger(logger).addFilter(_is_of_use)


def _is_of_use(record: LogRecord) -> bool:
    """Drop the stack traces that py4j logs when a call in either direction breaks off."""
    return not (record.exc_info and record.module in ("java_gateway", "clientserver"))


def end_jvm() -> None:
    """End the JVM of this process and wait for it; Spark must have stopped.

    Raises ``WatersmeetError`` if the JVM does not end, or not as it should.
    """
    jvm = process_folder().jvm
    if jvm is None or jvm.stdin is None:
        return
    jvm.stdin.close()  # the JVM ends with the process that holds the other end
    try:
        code = jvm.wait(_LAST_WRITES_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        raise WatersmeetError(f"the JVM did not end within {_LAST_WRITES_SECONDS:.0f} seconds") from None
    if code != 0:
        raise WatersmeetError(f"the JVM ended with code {code}")


@contextmanager
def _environment_of_jvm(folder: Path, options: Sequence[str], master: str) -> Iterator[None]:
    """Start JVMs meanwhile with ``options``; they and their Python workers put temporary files into ``folder``.

    The user's Java options come later on the command line, so they take precedence.
    """
    ours = " ".join(_quoted(option) for option in (f"-Djava.io.tmpdir={folder}", *AVRO_LIMITS, *options))
    changed = {
        "TMPDIR": str(folder),
        "SPARK_SUBMIT_OPTS": f"{ours} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip(),
    }
    if cores_of_local_cluster(master):
        changed |= {"SPARK_HOME": str(_spark_beside(folder)), "SPARK_LOCAL_IP": LOOPBACK}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _spark_beside(folder: Path) -> Path:
    """A folder of links to Spark's files: the executors of a local cluster work in SPARK_HOME/work."""
    home = folder / "spark"
    home.mkdir(exist_ok=True)
    for each in Path(_find_spark_home()).iterdir():
        with suppress(FileExistsError):  # a JVM that did not start has left it
            (home / each.name).symlink_to(each)
    return home


def _quoted(option: str) -> str:
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _HeldBack:
    """What a JVM writes to standard error (``target``): held back while it starts, later passed on to ``output``."""

    def __init__(self, output: int) -> None:
        reading, self.target = os.pipe()
        self._kept: list[bytes] = []
        self._has_started = threading.Event()
        self._thread = threading.Thread(
            target=self._read, args=(reading, os.dup(output)), name="watersmeet-jvm", daemon=True
        )
        self._thread.start()

    def all(self) -> str:
        """Everything that a JVM wrote which did not start."""
        os.close(self.target)
        self._thread.join(_LAST_WORDS_SECONDS)
        return b"".join(self._kept).decode(errors="replace")

    def pass_on(self) -> None:
        """Discard what was held back, and pass on what follows."""
        os.close(self.target)
        self._has_started.set()
        self._kept.clear()

    def _read(self, source: int, output: int) -> None:
        with open(source, "rb") as lines, open(output, "wb", buffering=0) as out:
            for line in lines:
                if not self._has_started.is_set():
                    self._kept.append(line)
                    continue
                with suppress(OSError):  # the JVM must not block because nobody reads what it prints
                    out.write(line)
