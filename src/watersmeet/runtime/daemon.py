"""The process from which Spark forks its Python workers, with their libraries already imported.

A worker that imports them itself needs a second or more before its first row.  Spark's worker collects garbage after
each task; the imported modules are excluded from that, because scanning them takes longer than many a task.
"""

import gc

import duckdb  # noqa: F401
import pandas as pd  # noqa: F401
import pyarrow as pa  # noqa: F401
from pyspark.daemon import manager

import watersmeet.records.kafka_tail
import watersmeet.runtime.real_time.operator_task
import watersmeet.runtime.real_time.sinks
import watersmeet.runtime.real_time.source_task
import watersmeet.runtime.worker_scan
import watersmeet.runtime.worker_tasks  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
