"""An archive of the JVM's loaded classes (class data sharing), with which Spark starts seconds sooner.

A JVM that is told to records its classes when it ends; later ones map the file instead of parsing thousands of classes
again.  The archive is for one Java and one PySpark and lives in the Python environment.  Its name is
``spark-IDENTITY-BYTES.jsa``: a JVM ignores an archive that does not suit it (of another class path, say), but crashes
on one that was cut short, so one of another size than its name says is not used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from watersmeet.errors import ConfigError, WatersmeetError

_IGNORED_QUIETLY = "-Xlog:cds*=off"
_PARTIAL = ".recording-"


def class_archive() -> Path | None:
    """The archive for this environment's PySpark and the Java that it starts; None if there is none, or no Java."""
    identity = _identity()
    if identity is None:
        return None
    found = _folder().glob(f"spark-{identity}-*.jsa")
    return next((path for path in found if path.stem.endswith(f"-{path.stat().st_size}")), None)


def sharing_options() -> list[str]:
    """The JVM options that use the archive; none if there is no archive."""
    path = class_archive()
    return [] if path is None else [f"-XX:SharedArchiveFile={path}", _IGNORED_QUIETLY]


def recording_options(path: Path) -> list[str]:
    """The JVM options that record an archive at ``path`` when the JVM ends."""
    return [f"-XX:ArchiveClassesAtExit={path}", _IGNORED_QUIETLY]


@contextmanager
def new_archive() -> Iterator[Path]:
    """Yield a path to record to; at the end, what is there replaces every earlier archive.

    Raises ``ConfigError`` if there is no Java, or no folder for the archive can be made, and ``WatersmeetError`` if
    nothing was recorded.
    """
    identity = _identity()
    if identity is None:
        raise ConfigError("there is no Java to start Spark with", hint="install Java 17 or newer, or set JAVA_HOME")
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be made: {error.strerror}",
            hint="run this as the owner of the Python environment; without an archive Spark starts as before",
        ) from None
    for left in folder.glob(f"{_PARTIAL}*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    # If we are interrupted, the JVM outlives us, and finds no folder to write to.
    with tempfile.TemporaryDirectory(dir=folder, prefix=_PARTIAL) as name:
        partial = Path(name) / "spark.jsa"
        yield partial
        if not partial.is_file():
            raise WatersmeetError(
                "the JVM has recorded no archive of its classes",
                hint="is there room for 300 MB on the disk? Without an archive Spark starts as before",
            )
        archive = folder / f"spark-{identity}-{partial.stat().st_size}.jsa"
        partial.replace(archive)
    for path in folder.glob("spark-*.jsa"):
        if path != archive:
            path.unlink(missing_ok=True)


def _folder() -> Path:
    return Path(sys.prefix) / "share" / "watersmeet"


def _identity() -> str | None:
    """What tells one Java and PySpark from others; None if there is no Java."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return None
    binary = Path(java).resolve()
    parts = f"{binary}|{binary.stat().st_mtime_ns}|{pyspark.__version__}|{pyspark.__file__}"
    return hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()
