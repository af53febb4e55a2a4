"""An archive of the JVM's loaded classes (class data sharing), with which Spark starts seconds sooner.

A JVM that is told to records its classes when it ends; later ones map the file instead of parsing thousands of classes
again.  The archive is for one Java and one PySpark, which its name says, and lives in the Python environment that holds
PySpark.  A JVM that finds it unsuitable (another class path, say) ignores it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pyspark

from watersmeet.errors import ConfigError

_IGNORED_QUIETLY = "-Xlog:cds*=off"


def class_archive() -> Path | None:
    """The path of the archive for this environment's PySpark and the Java that it starts; None if there is no Java."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return None
    binary = Path(java).resolve()
    identity = f"{binary}|{binary.stat().st_mtime_ns}|{pyspark.__version__}|{pyspark.__file__}"
    name = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
    return Path(sys.prefix) / "share" / "watersmeet" / f"spark-{name}.jsa"


def sharing_options() -> list[str]:
    """The JVM options that use the archive; none if there is no archive."""
    path = class_archive()
    if path is None or not path.is_file():
        return []
    return [f"-XX:SharedArchiveFile={path}", _IGNORED_QUIETLY]


def recording_options(path: Path) -> list[str]:
    """The JVM options that record an archive at ``path`` when the JVM ends."""
    return [f"-XX:ArchiveClassesAtExit={path}", _IGNORED_QUIETLY]


def new_archive() -> tuple[Path, Path]:
    """The path of the archive to be made, and one beside it to record to; raises ``ConfigError`` if none can be."""
    path = class_archive()
    if path is None:
        raise ConfigError("there is no Java to start Spark with", hint="install Java 17 or newer, or set JAVA_HOME")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path.parent} cannot be made: {error.strerror}",
            hint="run this as the owner of the Python environment; without an archive Spark starts as before",
        ) from None
    return path, path.with_name(f".{path.stem}-{os.getpid()}.jsa")
