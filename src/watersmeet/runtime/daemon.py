"""The process from which Spark forks its Python workers, with the libraries that they need imported already.

A worker that imports them itself takes a second or more before its first row; a forked one has them at once.  Spark's
worker collects garbage after each task; what stands here already is left out of that, which would find nothing and take
longer than many a task.
"""

import gc

import duckdb  # noqa: F401
import pandas as pd  # noqa: F401
import pyarrow as pa  # noqa: F401
from pyspark.daemon import manager

import watersmeet.runtime.hosted_operator
import watersmeet.runtime.worker_scan  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
