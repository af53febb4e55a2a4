"""The ``files`` connector: JSON lines, CSV and Parquet files, as source and as sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructField, StructType, TimestampType

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import SEQUENCE, TP_TIME, spark_name
from watersmeet.connectors.connector import Reading, SinkConnector, StoredConnector, WriteBatch, Writing
from watersmeet.connectors.files.csv_headers import PLACE, VALUE, skip_headers
from watersmeet.connectors.files.options import NAME, PREFIXES, FilesOptions, options_of, without_prefix
from watersmeet.connectors.files.sink import write_batch
from watersmeet.connectors.folder_files import files_measure
from watersmeet.connectors.formats.debezium import decode_changes
from watersmeet.connectors.formats.envelope import DEBEZIUM
from watersmeet.connectors.formats.record_decoders import decoder_of
from watersmeet.connectors.formats.values import Format, decode, format_options
from watersmeet.connectors.sink_changelogs import Changelogs
from watersmeet.engine.parquet import ParquetFile
from watersmeet.errors import ConnectorError
from watersmeet.records.lines import LINE_SCHEMA, LineReader
from watersmeet.runtime.run_progress import Measure
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.worker_records import RecordFormat, RecordSource
from watersmeet.runtime.worker_scan import ARRIVAL, ParquetFiles
from watersmeet.settings.secrets import masked_value
from watersmeet.settings.seek import Seek

#: The columns of Spark's source of whole files; none of them is selected.
_BINARY_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_OF_PATTERNS = frozenset("*?[]{}=%")
_CHANGED = "_metadata.file_modification_time"


class FilesConnector(StoredConnector, SinkConnector):
    """Files in the folder ``path``, as a source and as a sink that writes each batch exactly once.

    As a source, it reads every file that appears, once, in order of modification time, at most
    ``max_files_per_trigger`` files per micro-batch. ``format`` is ``json`` (lines, the default), ``csv``, ``parquet``
    or, for changing streams, ``debezium-json``; ``json.*``, ``csv.*`` and ``parquet.*`` are Spark's options for it.
    With ``header`` the first line of each CSV file names the columns, in declared order. As a sink, it names files by
    query, batch and part, so a batch that is written again replaces its own files; with ``changelog`` it takes a
    changelog and writes ``_tp_delta`` as the last column. ``compression`` is ``none`` or ``gzip``, for Parquet also
    ``snappy`` (the default there) or ``zstd``.
    """

    name = NAME
    model = FilesOptions
    prefixes = PREFIXES
    changelogs = (Changelogs.IF_ASKED,)

    def check(self, stream: StreamDef) -> None:
        """Raise ``ConfigError`` for wrong options."""
        options_of(stream.options)

    def limits_batches(self, stream: StreamDef) -> bool:
        """Return whether the stream has the option ``max_files_per_trigger``."""
        return options_of(stream.options).max_files_per_trigger is not None

    def open_source(self, reading: Reading) -> Source:
        """Return a source of the folder; with ``seek`` it skips files that were last changed before.

        Raises ``ConnectorError`` where the folder does not exist.
        """
        spark, columns = reading.spark, reading.columns
        given = _existing(spark, reading.stream.options)
        raw = _since(_raw(_stream_reader(spark, given, limited=reading.limited), columns, given), reading.seek)
        if given.format == "parquet":
            frame = _rows_of_parquet(raw, columns, F.current_timestamp())
            scanned = parquet_files(spark, columns, reading.stream.options, limited=reading.limited, seek=reading.seek)
            return Source(frame, files=scanned, measures=_measures(spark, given))
        lines = _lines(raw, columns, given, F.current_timestamp())
        rows, records = _decoded(lines, columns, given, reading.changing), _records(reading, given, lines)
        return Source(rows, records=records, measures=_measures(spark, given))

    def open_stored(self, reading: Reading) -> DataFrame:
        """Return the rows of the files that exist now; they arrived when their file was last changed."""
        given = _existing(reading.spark, reading.stream.options)
        raw = _raw(reading.spark.read, reading.columns, given)
        if given.format == "parquet":
            return _rows_of_parquet(raw, reading.columns, F.col(_CHANGED))
        lines = _lines(raw, reading.columns, given, F.col(_CHANGED))
        return _decoded(lines, reading.columns, given, reading.changing)

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what writes a batch as files."""
        options = writing.stream.options

        return lambda rows, batch_id, key: write_batch(rows, batch_id, key, options)


# -- source ------------------------------------------------------------------------------------------------------------


def parquet_files(
    spark: SparkSession, columns: StructType, options: Mapping[str, str], *, limited: bool, seek: Seek | None = None
) -> ParquetFiles | None:
    """Return the stream's Parquet files for workers to read; None where only Spark can read them.

    Only Spark reads other formats, files with options of Spark's reader, file systems that workers cannot reach, and
    paths that may stand for several folders. A checkpoint records the files in the same way in both cases.
    """
    given = options_of(options)
    if given.format != "parquet" or given.format_options or set(given.path) & _OF_PATTERNS:
        return None
    root = Storage(spark).worker_path(given.path)
    if root is None or "=" in root:
        return None
    # Spark reads only selected columns, so it does not read the files' content
    reader = _stream_reader(spark, given, limited=limited).format("binaryFile").schema(_BINARY_FILES)
    listed = _since(reader.load(given.path), seek)
    frame = listed.select(
        F.col("_metadata.file_path").alias("uri"),
        _file().alias("place"),
        F.current_timestamp().alias(ARRIVAL),
    )
    schema = StructType([*columns.fields, StructField(TP_TIME, TimestampType())])
    return ParquetFiles(frame, to_arrow_schema(schema, timezone="UTC"), partial(_listed, root=root))


def _measures(spark: SparkSession, given: FilesOptions) -> tuple[Measure, ...]:
    """Return how to measure the files; nothing for a path that may stand for several folders, which Spark lists."""
    return () if set(given.path) & _OF_PATTERNS else (files_measure(partial(Storage, spark), given.path),)


def _listed(batch: pa.RecordBatch, root: str) -> Iterator[ParquetFile]:
    for uri, place, arrival in zip(*(batch.column(i) for i in range(3)), strict=True):
        yield ParquetFile(uri.as_py(), place.as_py(), root, arrival if arrival.is_valid else None)


def _stream_reader(spark: SparkSession, given: FilesOptions, *, limited: bool) -> DataStreamReader:
    # by default Spark silently skips files that are a week older than the newest one
    reader = spark.readStream.option("maxFileAge", "36500d")
    if given.max_files_per_trigger is not None and limited:
        return reader.option("maxFilesPerTrigger", given.max_files_per_trigger)
    return reader


def _since(files: DataFrame, seek: Seek | None) -> DataFrame:
    if seek is None or seek.since is None:
        return files
    return files.where(F.col(_CHANGED) >= F.timestamp_micros(F.lit(seek.since)))


def _existing(spark: SparkSession, options: Mapping[str, str]) -> FilesOptions:
    given = options_of(options)
    if not Storage(spark).exists(given.path):
        shown = masked_value("path", given.path)
        raise ConnectorError(f"there is no folder {shown}", hint="create it, or correct the option path")
    return given


def _raw(reader: DataFrameReader | DataStreamReader, columns: StructType, given: FilesOptions) -> DataFrame:
    """Return the files as Spark reads them: columns of Parquet, else lines."""
    if given.format == "parquet":
        return reader.schema(columns).options(**without_prefix(given, "parquet.")).parquet(given.path)
    return reader.text(given.path)


def _rows_of_parquet(raw: DataFrame, columns: StructType, arrival: Column) -> DataFrame:
    """Return rows of Parquet files as the declared columns and the hidden ones of a source."""
    declared = [spark_name(field.name) for field in columns]
    place = F.concat(F.encode(_file(), "UTF-8"), F.unhex(_sixteen_digits("_metadata.row_index")))
    return raw.select(*declared, place.alias(SEQUENCE), arrival.alias(TP_TIME))


def _lines(raw: DataFrame, columns: StructType, given: FilesOptions, arrival: Column) -> DataFrame:
    """Return the lines of text files that are not blank, as ``LINE_SCHEMA`` but for their type."""
    lines = raw.where(F.trim(VALUE) != "")
    place = F.concat(_file(), _sixteen_digits("_metadata.file_block_start"))
    lines = lines.select(VALUE, place.alias(PLACE), arrival.alias(TP_TIME))
    if given.format == "csv" and given.header:
        lines = skip_headers(lines, columns.names, format_options(Format.CSV, given.format_options))
    return lines.select(VALUE, F.encode(PLACE, "UTF-8").alias(SEQUENCE), TP_TIME)


def _decoded(lines: DataFrame, columns: StructType, given: FilesOptions, changing: StreamDef | None) -> DataFrame:
    """Return lines as the declared columns and the hidden ones of a source."""
    if given.format == DEBEZIUM:
        assert changing is not None  # see registry.check_connector
        return decode_changes(lines, VALUE, changing, columns, given.format_options)
    return decode(lines, VALUE, Format(given.format), columns, given.format_options)


def _records(reading: Reading, given: FilesOptions, lines: DataFrame) -> RecordSource | None:
    """Return the lines as records for workers to decode; None where only Spark can."""
    decoder = decoder_of(reading.spark, given.format, reading.columns, given.format_options, reading.changing)
    if decoder is None:
        return None
    format = RecordFormat(
        LINE_SCHEMA,
        decoder,
        lambda raw: _decoded(raw, reading.columns, given, reading.changing),
        is_text=True,
        has_deltas=given.format == DEBEZIUM,
    )
    return RecordSource(lines, LineReader(), format)


def _file() -> Column:
    """Return the file's URI and a NUL, which ends it where a place within the file follows."""
    return F.concat("_metadata.file_path", F.lit("\0"))


def _sixteen_digits(number: str) -> Column:
    return F.lpad(F.hex(number), 16, "0")
