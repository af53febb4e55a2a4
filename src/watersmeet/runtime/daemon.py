"""The process from which Spark forks its Python workers, with the libraries that they need imported already.

A worker that imports them itself takes a second or more before its first row; a forked one has them at once.
"""

import duckdb  # noqa: F401
import pandas as pd  # noqa: F401
import pyarrow as pa  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
