"""Files as a sink: each batch's files are written beside the others, and then moved to their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from watersmeet.connectors.files.options import FilesOptions, options_of, without_prefix
from watersmeet.errors import OutageError, SinkOutageError
from watersmeet.filesystems import is_unreachable
from watersmeet.runtime.failures import cause_of, known_error
from watersmeet.runtime.shared_folders import SHARED_OR_STORE, require_shared
from watersmeet.runtime.storage import Storage
from watersmeet.settings.secrets import hide, masked_value


def write_batch(frame: DataFrame, batch_id: int, key: str, options: Mapping[str, str]) -> None:
    """Write the rows of a batch, which ``key`` names, and replace files that an earlier attempt at it left.

    Raises ``ConnectorError`` where the folder cannot be created, ``SinkOutageError`` where its store does not answer.
    """
    given = options_of(options)
    with _reporting(f"batch {batch_id} could not be written to {masked_value('path', given.path)}"):
        _write(frame, key, given)


def _write(frame: DataFrame, key: str, given: FilesOptions) -> None:
    storage = Storage(frame.sparkSession)
    storage.make_folder(given.path)  # Spark's own error for it is not one sentence
    require_shared(frame.sparkSession, given.path, "the sink's folder", SHARED_OR_STORE)
    staging = f"{given.path}/_staging-{key}"
    writer = frame.write.mode("overwrite").option("escape", '"').options(**without_prefix(given, f"{given.format}."))
    if given.format == "csv" and given.header:
        writer = writer.option("header", "true")
    if given.format == "json":
        writer = writer.option("ignoreNullFields", "false")
    if given.compression is not None:
        writer = writer.option("compression", given.compression)
    writer.format(given.format).save(staging)
    prefix = f"{key}-"
    for name in storage.names(given.path):
        if name.startswith(prefix):
            storage.delete(f"{given.path}/{name}")
    parts = [name for name in storage.names(staging) if name.startswith("part-")]
    for number, name in enumerate(parts):
        ending = name.split(".", 1)[1] if "." in name else given.format
        storage.rename(f"{staging}/{name}", f"{given.path}/{prefix}{number:05d}.{ending}")
    storage.delete(staging)


@contextmanager
def _reporting(what: str) -> Iterator[None]:
    """Raise ``SinkOutageError`` where the store does not answer."""
    try:
        yield
    except OutageError as error:
        raise SinkOutageError(f"{what}: {error.message}") from None
    except (PySparkException, Py4JError) as error:
        text = hide(str(error))
        if known_error(text) is not None or not is_unreachable(text):
            raise
        raise SinkOutageError(f"{what}: {cause_of(text)}") from None
