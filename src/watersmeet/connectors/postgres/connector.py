"""The ``postgres`` connector: a table as a changing stream, its rows first and then its changes."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, StructType

from watersmeet.catalog.streams import StreamDef, StreamMode
from watersmeet.columns import BAD, TP_DELTA, TP_TIME, spark_name
from watersmeet.connectors.connector import Reading, SourceConnector
from watersmeet.connectors.deletes import MICROS, in_time_column
from watersmeet.connectors.postgres.options import NAME, PostgresOptions, options_of
from watersmeet.connectors.postgres.reader import Subject, inspect
from watersmeet.connectors.postgres.source import HIDDEN, stream_of
from watersmeet.connectors.postgres.table import Declared
from watersmeet.errors import ConfigError, UnsupportedError
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.storage import Storage

_NESTED = ("map", "struct", "variant", "interval", "void", "calendarinterval")


class PostgresConnector(SourceConnector):
    """A table of PostgreSQL as a changing stream: its rows, then every change, by logical replication.

    ``url`` is the database (``jdbc:postgresql://host:port/database``), ``table`` the table, ``user`` and ``password``
    the login (by reference to a secret). ``publication`` names one that exists; else one is created.
    ``max_rows_per_trigger`` limits a micro-batch (default 500000), which ends with a transaction. ``poll_interval`` is
    the time between two looks for changes (default ``'1 second'``), ``timeout`` the longest that a connection attempt,
    a lock or a wait for open transactions may take (default ``'60 seconds'``).
    """

    name = NAME
    model = PostgresOptions

    def check(self, stream: StreamDef) -> None:
        """Raise ``ConfigError`` for wrong options, for a stream that is not changing or declares no columns."""
        options_of(stream.options)
        if not stream.changes:
            raise ConfigError(
                f"{NAME} brings changes, but {stream.name} only appends rows",
                hint="CREATE MUTABLE STREAM … PRIMARY KEY (…), or add PRIMARY KEY (…) SETTINGS mode = 'changelog_kv'",
                option="connector",
            )

    def open_source(self, reading: Reading) -> Source:
        """Return the table as a source; it is looked at, and the slot is made when the query first plans a batch.

        Raises ``ConnectorError`` where the table cannot be read, ``UnsupportedError`` for types that it has not.
        """
        stream = reading.stream
        columns = StructType([each for each in reading.columns if each.name != TP_DELTA])
        for each in columns:
            if not _is_known(each.dataType):
                raise UnsupportedError(
                    f"column {each.name} of {stream.name} is {each.dataType.simpleString().upper()}, which {NAME} does "
                    "not read",
                    hint="declare it as STRING: every value of PostgreSQL has a text",
                )
        schema = to_arrow_schema(columns, timezone="UTC")
        declared = Declared(stream.name, schema, stream.primary_key, stream.mode is StreamMode.CHANGELOG)
        given = options_of(stream.options)
        subject = Subject(declared, given, given.address(), _folder(reading))
        inspect(subject)
        read = StructType([*columns.fields, *from_arrow_schema(HIDDEN).fields])
        return Source(_dated(stream_of(reading.spark, subject, read, limited=reading.limited), stream))


def _is_known(type: DataType) -> bool:
    if isinstance(type, ArrayType):
        return _is_known(type.elementType)
    return not type.typeName().startswith(_NESTED)


def _folder(reading: Reading) -> str:
    """Where workers and the driver find the pieces of the stream; empty if the query's checkpoint is not known."""
    if reading.pieces is None:
        return ""
    folder = f"{reading.pieces}/{reading.stream.name.lower()}"
    found = Storage(reading.spark).worker_path(folder)
    if found is None:
        raise UnsupportedError(
            f"{reading.stream.name} ({NAME}) keeps what it has read in the query's checkpoint, which workers do not "
            f"reach: {folder}",
            hint="put the workspace or the checkpoint on a disk that all share, or on a store of the S3 protocol",
        )
    return found


def _dated(frame: DataFrame, stream: StreamDef) -> DataFrame:
    """Give deletes the time of their commit, where the stream has an event time of its own.

    A retraction of a changelog has that of its row.
    """
    if stream.mode is StreamMode.VERSIONED and stream.time_column in frame.columns and stream.time_column != TP_TIME:
        name = spark_name(stream.time_column)
        is_delete = (F.col(TP_DELTA) == -1) & F.col(BAD).isNull()
        if stream.time_column in stream.primary_key:
            is_delete &= F.col(name).isNull()
        dated = frame.withColumn(MICROS, F.unix_micros(TP_TIME))
        frame = dated.withColumn(
            stream.time_column, F.when(is_delete, in_time_column(stream, MICROS)).otherwise(F.col(name))
        )
        frame = frame.drop(MICROS)
    return frame
