"""The process from which Spark forks its Python workers, with their libraries already imported.

Spark's worker collects garbage after each task; the imported modules are excluded from that, because scanning them
takes longer than many a task.
"""

import gc

from pyspark.daemon import manager

import watersmeet.runtime.worker_libraries  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
