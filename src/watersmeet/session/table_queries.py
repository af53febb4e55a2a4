"""Batch queries over stored rows (``table(name)``), which Spark evaluates."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import datetime

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from watersmeet.arrow_rows import python_values
from watersmeet.bind.table_queries import stored_streams
from watersmeet.connectors.current_rows import current_rows
from watersmeet.errors import BindError, SqlSyntaxError, WatersmeetError
from watersmeet.runtime.failures import first_sentence, known_error, translate, without_stacks
from watersmeet.session.streams import Streams
from watersmeet.settings.secrets import hide
from watersmeet.sql.statements import HistoricalQuery
from watersmeet.sql.table_queries import SparkText, spark_text

_LOOK_SECONDS = 0.2
_NAME = "over what is stored"
_PLACE = re.compile(r"\bline (\d+),? pos (\d+)")


def batch_frame(spark: SparkSession, query: HistoricalQuery, streams: Streams) -> DataFrame:
    """The query as a batch DataFrame over the rows that are stored now.

    All ``table(name)`` of one stream are one temporary view, so they have the same rows.  Raises as ``stored_streams``
    does, ``UnsupportedError`` for streams that store no rows, and Spark's errors as ``SqlSyntaxError`` and
    ``BindError``, with the position in the script.
    """
    found = stored_streams(query, streams.by_name())
    run = uuid.uuid4().hex[:8]
    views = {key: f"watersmeet_{key}_{run}" for key in found}
    try:
        for key, stream in found.items():
            try:
                with spark_errors():
                    rows = current_rows(streams.stored(stream), stream, named=query.hidden)
                    rows.createOrReplaceTempView(views[key])
            except WatersmeetError as error:
                first = next(table for table in query.tables if table.name.lower() == key)
                error.position = error.position or first.position
                raise
        text = spark_text(query, views)
        with spark_errors(text):
            return spark.sql(text.text)
    finally:
        for view in views.values():
            spark.catalog.dropTempView(view)


def insert_rows(frame: DataFrame, write: Callable[[DataFrame], object]) -> int:
    """Write the rows to a sink, and return their number."""
    counting = Observation()
    with spark_errors():
        write(frame.observe(counting, F.count(F.lit(1)).alias("rows")))
    return int(counting.get["rows"])


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    """Collect all rows for printing; times are in the session's zone, without its name."""
    return _plain_rows(arrow_of(frame))


def arrow_of(frame: DataFrame) -> pa.Table:
    """Collect all rows."""
    with spark_errors():
        return frame.toArrow()


def rows_unless(stop: Callable[[], bool], frame: DataFrame) -> list[tuple[object, ...]] | None:
    """Collect all rows as ``rows_of`` does; if ``stop`` returns True first, cancel Spark's work and return None."""
    context = frame.sparkSession.sparkContext
    tag = f"watersmeet-{uuid.uuid4().hex}"

    def collect() -> pa.Table:
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        return frame.toArrow()

    with ThreadPoolExecutor(1) as pool, spark_errors():
        collecting = pool.submit(collect)
        while not stop():
            with suppress(TimeoutError):
                return _plain_rows(collecting.result(_LOOK_SECONDS))
        while not collecting.done():  # its job may not have started yet
            context.cancelJobsWithTag(tag)
            wait([collecting], _LOOK_SECONDS)
        return None


@contextmanager
def spark_errors(text: SparkText | None = None) -> Iterator[None]:
    """Turn what Spark raises into one of our errors, with its position if it names one in ``text``."""
    try:
        with without_stacks():
            yield
    except AnalysisException as error:
        raise _refusal(error, text) from None
    except (PySparkException, Py4JJavaError) as error:
        raise known_error(hide(str(error))) or _failure(error) from None


def _refusal(error: AnalysisException, text: SparkText | None) -> WatersmeetError:
    position, detail = None, None
    if text is not None and (place := _PLACE.search(str(error))) is not None:
        position, detail = text.place(int(place[1]), int(place[2]))
    if isinstance(error, ParseException):
        return SqlSyntaxError(f"Spark cannot read the query: {_sentence(error)}", detail=detail, position=position)
    return BindError(f"the query cannot be planned: {_sentence(error)}", detail=detail, position=position)


def _failure(error: PySparkException | Py4JJavaError) -> WatersmeetError:
    if isinstance(error, PySparkException) and error.getCondition() is not None:
        return WatersmeetError(f"query {_NAME} failed: {hide(_sentence(error))}")
    failure = translate(error, _NAME)
    failure.hint = None  # there is no checkpoint to resume from
    return failure


def _sentence(error: PySparkException) -> str:
    return first_sentence(error).splitlines()[0]


def _plain_rows(table: pa.Table) -> list[tuple[object, ...]]:
    # by position: two columns of Spark SQL may have one name
    columns = [[_plain(value) for value in python_values(column)] for column in table.columns]
    return list(zip(*columns, strict=True))


def _plain(value: object) -> object:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
