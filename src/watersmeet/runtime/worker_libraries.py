"""Imports what Python workers need: a worker that imports it itself needs seconds before its first row."""

import os

import duckdb  # noqa: F401
import numpy as np
import pandas as pd  # noqa: F401
import pyarrow as pa  # noqa: F401
import pyspark.daemon
import pyspark.worker  # noqa: F401

import watersmeet.records.kafka_tail
import watersmeet.runtime.real_time.operator_task
import watersmeet.runtime.real_time.sinks
import watersmeet.runtime.real_time.source_task
import watersmeet.runtime.worker_scan
import watersmeet.runtime.worker_tasks  # noqa: F401

# the generator was made with the import, and all forks would draw the same numbers
os.register_at_fork(after_in_child=np.random.seed)
