"""What the user has configured of Spark outside this program: by ``spark-submit``, or in ``spark-defaults.conf``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home

#: A line of a file of Java's properties, as Spark writes and documents them; others are comments.
_LINE = re.compile(r"\s*(spark\.[^\s=:]+)\s*[\s=:]\s*(.*?)\s*")


def configured() -> Mapping[str, str]:
    """Return the settings by their names, without those of Spark's own that nobody has set."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started a JVM, which knows them
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    path = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf", "spark-defaults.conf")
    if not path.is_file():
        return {}
    found = map(_LINE.fullmatch, path.read_text(encoding="utf-8").splitlines())
    return {each[1]: each[2] for each in found if each is not None}
