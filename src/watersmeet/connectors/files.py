"""Files as streams: JSON lines, CSV and Parquet, as source and as sink.

Source: every file that appears in the folder is read once, in order of modification time.
Sink: each batch becomes files named by query, batch and part; a batch that is written again replaces its own files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructField, StructType, TimestampType

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import SEQUENCE, TP_TIME, spark_name
from watersmeet.connectors.debezium import decode_changes
from watersmeet.connectors.envelope import DEBEZIUM, value_format
from watersmeet.connectors.formats import Format, decode, format_options
from watersmeet.connectors.headers import PLACE, VALUE, skip_headers
from watersmeet.errors import ConfigError, ConnectorError
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.worker_scan import ParquetFiles
from watersmeet.settings.option_parsing import parse_options
from watersmeet.settings.secrets import masked_value
from watersmeet.settings.seek import Seek

#: The columns of Spark's source of whole files, of which none is asked for.
_BINARY_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_CHANGED = "_metadata.file_modification_time"


class FilesOptions(BaseModel):
    """The WITH options of a stream of files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, Field(min_length=1)]
    format: Literal["json", "csv", "parquet", "debezium-json"] = "json"
    max_files_per_trigger: Annotated[int, Field(gt=0)] | None = None
    """The most files of one micro-batch."""
    header: bool = False
    """CSV: whether the first line of each file names the columns (source and sink), in the declared order."""
    changelog: bool = False
    """Sink: take a changelog, with ``_tp_delta`` as the last column."""
    format_options: dict[str, str] = {}


def options_of(options: Mapping[str, str]) -> FilesOptions:
    """The options of a WITH clause, checked; ``ConfigError`` for what is missing, unknown or wrong."""
    given = parse_options(FilesOptions, "files", options, nested={"format_options": ("json.", "csv.", "parquet.")})
    if given.header and given.format != "csv":
        raise ConfigError(f"files: header goes with format = 'csv', not {given.format!r}", option="header")
    for name in given.format_options:
        if name.lower() == "csv.header":
            raise ConfigError(f"files has no option {name!r}", hint="write header = 'true'", option=name)
        if not name.startswith(f"{value_format(given.format)}."):
            raise ConfigError(f"files: {name} does not go with format = '{given.format}'", option=name)
    return given


def read_stream(
    spark: SparkSession,
    columns: StructType,
    options: Mapping[str, str],
    *,
    limited: bool,
    changing: StreamDef | None = None,
    seek: Seek | None = None,
) -> DataFrame:
    """A streaming source frame of the folder; ``limited`` honours ``max_files_per_trigger``.

    ``changing`` is the stream, where its rows change; with ``seek`` only files that were changed since then are read.
    Raises ``ConnectorError`` where the folder is not there.
    """
    given = _opened(spark, options)
    raw = _since(_raw(_stream_reader(spark, given, limited=limited), columns, given), seek)
    return _source_frame(raw, columns, given, changing, F.current_timestamp())


def parquet_files(
    spark: SparkSession, columns: StructType, options: Mapping[str, str], *, limited: bool, seek: Seek | None = None
) -> ParquetFiles | None:
    """The files of the same stream, for workers to read; None where only Spark can.

    So it is with other formats, with options of Spark's reader, on file systems that are not mounted, and where the
    path may stand for several folders.  What a checkpoint knows of the files is the same either way.
    """
    given = options_of(options)
    if given.format != "parquet" or given.format_options or set(given.path) & set("*?[]{}=%"):
        return None
    root = Storage(spark).local_path(given.path)
    if root is None or "=" in root:
        return None
    # only what is selected is read: nothing of the files' content
    reader = _stream_reader(spark, given, limited=limited).format("binaryFile").schema(_BINARY_FILES)
    listed = _since(reader.load(given.path), seek)
    frame = listed.select(
        F.col("_metadata.file_path").alias("uri"),
        _file().alias("place"),
        F.current_timestamp().alias("arrival"),
    )
    schema = StructType([*columns.fields, StructField(TP_TIME, TimestampType())])
    return ParquetFiles(frame, to_arrow_schema(schema, timezone="UTC"), root)


def _stream_reader(spark: SparkSession, given: FilesOptions, *, limited: bool) -> DataStreamReader:
    # by default Spark passes over files a week older than the newest one, without a word
    reader = spark.readStream.option("maxFileAge", "36500d")
    if given.max_files_per_trigger is not None and limited:
        return reader.option("maxFilesPerTrigger", given.max_files_per_trigger)
    return reader


def _since(files: DataFrame, seek: Seek | None) -> DataFrame:
    if seek is None or seek.since is None:
        return files
    return files.where(F.col(_CHANGED) >= F.timestamp_micros(F.lit(seek.since)))


def read_stored(
    spark: SparkSession, columns: StructType, options: Mapping[str, str], *, changing: StreamDef | None = None
) -> DataFrame:
    """A batch source frame of the files that are there now, which arrived when they were last changed.

    ``changing`` and errors are those of ``read_stream``.
    """
    given = _opened(spark, options)
    return _source_frame(_raw(spark.read, columns, given), columns, given, changing, F.col(_CHANGED))


def write_batch(frame: DataFrame, key: str, options: Mapping[str, str]) -> None:
    """Write the rows of a batch, which ``key`` names; files that an earlier attempt at it left are replaced.

    Raises ``ConnectorError`` where the folder cannot be made.
    """
    given = options_of(options)
    storage = Storage(frame.sparkSession)
    storage.make_folder(given.path)  # says it in a sentence where there can be none
    staging = f"{given.path}/_staging-{key}"
    writer = frame.write.mode("overwrite").option("escape", '"').options(**_without_prefix(given, f"{given.format}."))
    if given.format == "csv" and given.header:
        writer = writer.option("header", "true")
    if given.format == "json":
        writer = writer.option("ignoreNullFields", "false")
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


def _opened(spark: SparkSession, options: Mapping[str, str]) -> FilesOptions:
    given = options_of(options)
    if not Storage(spark).exists(given.path):
        raise ConnectorError(f"there is no folder {masked_value('path', given.path)}", hint="make it, or mend the option path")
    return given


def _raw(reader: DataFrameReader | DataStreamReader, columns: StructType, given: FilesOptions) -> DataFrame:
    """The files as Spark reads them: columns of Parquet, else lines."""
    if given.format == "parquet":
        return reader.schema(columns).options(**_without_prefix(given, "parquet.")).parquet(given.path)
    return reader.text(given.path)


def _source_frame(
    raw: DataFrame, columns: StructType, given: FilesOptions, changing: StreamDef | None, arrival: Column
) -> DataFrame:
    """What ``_raw`` gives as the declared columns and the hidden ones of a source."""
    if given.format == "parquet":
        declared = [spark_name(field.name) for field in columns]
        place = F.concat(F.encode(_file(), "UTF-8"), F.unhex(_sixteen_digits("_metadata.row_index")))
        return raw.select(*declared, place.alias(SEQUENCE), arrival.alias(TP_TIME))
    lines = raw.where(F.trim(VALUE) != "")
    place = F.concat(_file(), _sixteen_digits("_metadata.file_block_start"))
    lines = lines.select(VALUE, place.alias(PLACE), arrival.alias(TP_TIME))
    if given.format == "csv" and given.header:
        lines = skip_headers(lines, columns.names, format_options(Format.CSV, given.format_options))
    rows = lines.select(VALUE, F.encode(PLACE, "UTF-8").alias(SEQUENCE), TP_TIME)
    if given.format == DEBEZIUM:
        assert changing is not None  # see registry.check_connector
        return decode_changes(rows, VALUE, changing, columns, given.format_options)
    return decode(rows, VALUE, Format(given.format), columns, given.format_options)


def _file() -> Column:
    """The file, with what ends its name where a place within it follows."""
    return F.concat("_metadata.file_path", F.lit("\0"))


def _sixteen_digits(number: str) -> Column:
    return F.lpad(F.hex(number), 16, "0")


def _without_prefix(given: FilesOptions, prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in given.format_options.items() if name.startswith(prefix)}
