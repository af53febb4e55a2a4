"""Runs the cases of the test notation in real time, on Spark and with a Kafka broker.

The rows of a step are records of topics, which the query follows.  A step has ended when Spark has committed an epoch
that has taken all of them; its control events follow, and an epoch in which every stage has taken those.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.bind.planning import plan_query
from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.connectors.registry import open_source
from watersmeet.engine.control_events import Event
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.failures import translate
from watersmeet.runtime.job import Job, Output
from watersmeet.runtime.metrics import ProgressReader, counters_of
from watersmeet.runtime.outages import Outages
from watersmeet.runtime.real_time.run import RealTime
from watersmeet.runtime.real_time.sinks import LiveSink
from watersmeet.runtime.real_time.source_task import POSITIONS
from watersmeet.runtime.real_time.stages import stages_of
from watersmeet.runtime.real_time.writing import IS_OWN
from watersmeet.runtime.source_frames import Source
from watersmeet.runtime.storage import Storage
from watersmeet.settings.seek import Seek
from watersmeet.sql.statements import Query
from watersmeet.state.epoch_store import EpochStore
from watersmeet.testing.case import Case
from watersmeet.testing.cells import Row
from watersmeet.testing.cuts import Cut, fed
from watersmeet.testing.live_records import in_topic, records, with_deltas_read
from watersmeet.testing.live_results import LiveResults
from watersmeet.testing.live_topics import Topics
from watersmeet.testing.rig import Rig, StepInput, StepOutcome
from watersmeet.testing.runner import Failure, MakeRig, crash, run_case
from watersmeet.testing.tables import TableFiles

_REAL_TIME = {"mode": "real_time", "epoch": "1 second"}
_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 120.0
_WEIGHT = "weight"


class LiveRig(Rig):
    """One query in real time, with the interface of the harness; call ``close`` at the end.

    ``name`` is its own among all queries of the broker.  Spark needs as many task slots as the query.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        brokers: str,
        name: str,
        streams: Mapping[str, StreamDef],
        query: Query,
    ) -> None:
        self._tables = TableFiles(folder / "tables")
        real_time = replace(query, settings={**query.settings, **_REAL_TIME})
        super().__init__(plan_query(real_time, streams, self._tables.open), ())  # types are known once it has started
        self._spark = spark
        self._folder, self._name = folder, name
        self._topics = Topics(brokers, name)
        self._streams = {
            key: stream if stream.outside else in_topic(stream, brokers, self._topics.name(key))
            for key, stream in streams.items()
        }
        self._results = LiveResults(folder / "results")
        self._checkpoint = Checkpoint(Storage(spark), str(folder / "checkpoint"))
        self._real_time = RealTime(spark, self._job(), takes_events=True)
        assert self._real_time.control is not None
        self._control = self._real_time.control
        self._query: StreamingQuery | None = None
        self._progress = ProgressReader()
        self._fed: Counter[str] = Counter()  # by stream
        self._counters: dict[str, int] = {}
        self._events = 0
        self._events_taken = 0  # by all stages
        self._committed = -1  # the last epoch

    def restart(self) -> None:
        """Stop; the next step continues from the checkpoint, with nothing in the workers' memory."""
        self.close()

    def fill(self, table: str, rows: Sequence[Row]) -> None:
        """Replace the rows of an external table."""
        self._tables.fill(self._streams[table.lower()], rows)

    def step(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> StepOutcome:
        """Feed rows by stream name, then control events; return what the query emits."""
        if self._query is None:
            self._start()
        for name, rows in inputs.items():
            self._feed(name.lower(), rows)
        self._topics.send()
        self._wait(self._has_taken_all)
        for event in events:
            self._control.add(event)
            self._events += 1
        self._wait(self._has_taken_events)
        return StepOutcome(list(self._changes()), counters=dict(self._counters))

    def close(self) -> None:
        """Stop the Spark query; keep the folder."""
        if self._query is not None:
            with suppress(PySparkException, Py4JError):
                self._query.stop()
            self._query = None

    def _feed(self, name: str, rows: StepInput) -> None:
        """Add a step's rows; they arrive a millisecond after midnight, and one more for each row before the step."""
        millis = 1 + self._fed[name]
        for record in records(self._streams[name], rows):
            self._topics.add(name, record, millis)
            self._fed[name] += 1

    def _start(self) -> None:
        if not self.column_types:
            self._topics.create({part.input.stream.name for part in self.plan.streams})
            self._checkpoint.prepare(None)
        self._query = self._real_time.start(limited=False, available_now=False).query

    def _job(self) -> Job:
        return Job(
            name=self._name,
            plan=self.plan,
            limits_batches=False,
            open_sources=self._sources,
            outputs=(Output(self._name, "the test", lambda rows, batch, key: None),),
            live_sinks=lambda: [LiveSink(lambda _, run: self._results.writer(run), self._weighted)],
            keep_side_rows=lambda batch, key: None,
            checkpoint=self._checkpoint,
            outages=Outages(self._name, self.plan.query.settings),
        )

    def _sources(self, spark: SparkSession, limited: bool, seek: Seek | None, _: object) -> dict[str, Source]:
        read = {part.input.stream.name.lower() for part in self.plan.streams}
        return {
            name: with_deltas_read(
                open_source(spark, self._streams[name], self._folder, limited=limited, seek=seek, live=True),
                self._streams[name],
            )
            for name in read
        }

    def _weighted(self, rows: DataFrame) -> DataFrame:
        """The results with their weights, and what is beside them."""
        end = rows.columns.index(IS_OWN)
        self.column_types = [field.dataType.simpleString() for field in list(rows.schema)[: len(self.plan.outputs)]]
        # numbers, because a name may have a dot, and occur twice
        cells = [f"c{number}" for number in range(end)]
        numbered = rows.toDF(*cells, *rows.columns[end:])
        places = [name.lower() for name in rows.columns[:end]]
        weight = F.col(cells[places.index(TP_DELTA)]) if self.plan.weighted else F.lit(1)
        return numbered.select(*cells[: len(self.plan.outputs)], weight.alias(_WEIGHT), *rows.columns[end:])

    def _changes(self) -> Iterator[tuple[int, Row]]:
        for table in self._results.take(self._committed):
            cells = [column.to_pylist() for column in table.drop_columns([_WEIGHT]).columns]
            yield from zip(table[_WEIGHT].to_pylist(), zip(*cells, strict=True), strict=True)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _has_taken_all(self) -> bool:
        """Whether all records are before the positions of the committed epoch; counters count a row once a window."""
        return all(
            self._taken_of(number) >= self._fed[part.input.stream.name.lower()]
            for number, part in enumerate(self.plan.inputs)
            if not part.branches
        )

    def _taken_of(self, number: int) -> int:
        """How many records of an input have been read: those of a new topic are numbered from 0 on."""
        taken = 0
        for task in Path(self._checkpoint.epochs(None), "inputs", str(number)).glob("*"):
            if files := sorted(task.glob(f"{self._committed:09}-*.state")):
                stored = EpochStore(str(task), files[-1].name).get(POSITIONS)
                taken += sum(json.loads(stored or b"{}").values())
        return taken

    def _has_taken_events(self) -> bool:
        return self._events_taken >= self._events * len(stages_of(self.plan))

    def _wait(self, is_done: Callable[[], bool]) -> None:
        """Follow the query's progress until something holds; raises the query's error if it fails."""
        assert self._query is not None
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not is_done():
            try:
                self._query.awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type]
            except PySparkException as error:
                if not self._real_time.starts_again(error):
                    raise translate(error, self._name) from None
                self._start()
            for progress in self._progress.new(self._query):
                if counters := counters_of(progress):
                    self._real_time.has_run(progress)
                    self._counters.update(counters)
                    # workers read the topics, so all rows that Spark has read are control events
                    self._events_taken += int(progress["numInputRows"])
                    self._committed = int(progress["batchId"])
            if time.monotonic() > deadline:
                raise WatersmeetError(
                    f"the query has not taken all rows in {_PATIENCE_SECONDS:.0f} seconds",
                    detail=f"fed: {dict(self._fed)}, epoch {self._committed}, counters: {self._counters}",
                )


@contextmanager
def live_rigs(spark: SparkSession, folder: Path, brokers: str) -> Iterator[MakeRig]:
    """Yield a maker of rigs for ``run_case``; the end stops all of them."""
    made: list[LiveRig] = []
    names = f"case-{uuid.uuid4().hex[:8]}"

    def make(streams: Mapping[str, StreamDef], query: Query) -> LiveRig:
        name = f"{names}-{len(made)}"
        made.append(LiveRig(spark, folder / name, brokers, name, streams, query))
        return made[-1]

    try:
        yield make
    finally:
        for rig in made:
            rig.close()


def run_live(spark: SparkSession, case: Case, way: Cut, folder: Path, brokers: str) -> Failure | None:
    """Run a case in real time, fed in this way; return the first difference, or None."""
    if case.error is not None:
        return run_case(case)
    try:
        with live_rigs(spark, folder, brokers) as make:
            return run_case(case, fed(make, way))
    except Exception as error:  # noqa: BLE001 - reported as this case's failure
        return crash(case, error)
