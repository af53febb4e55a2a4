"""The Python of Spark's processes: PySpark as it is installed, and otherwise what plain Python does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.sql import SparkSession

from watersmeet.runtime.worker_python import archives_last, worker_python

if TYPE_CHECKING:
    import pandas as pd

HOME = Path(pyspark.__file__).parent
ARCHIVE = str(HOME / "python" / "lib" / "pyspark.zip")
SHOWN = "import sys, pyspark\nprint(pyspark.__file__, __name__, *sys.argv[1:])\n"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (
            ["/job", "/site/pyspark/python/lib/pyspark.zip", "/site/pyspark/python/lib/py4j-0.10-src.zip", "/site"],
            ["/job", "/site", "/site/pyspark/python/lib/pyspark.zip", "/site/pyspark/python/lib/py4j-0.10-src.zip"],
        ),
        # Spark is not the one that is installed, if any is
        (["/opt/spark/python/lib/pyspark.zip", "/site"], ["/opt/spark/python/lib/pyspark.zip", "/site"]),
        (["/site/pyspark/python/lib/pyspark.zip", "/other"], ["/site/pyspark/python/lib/pyspark.zip", "/other"]),
        (["/lib/python311.zip", "", "/lib"], ["/lib/python311.zip", "", "/lib"]),
    ],
)
def test_an_archive_goes_behind_the_package_that_it_is_made_of(path: list[str], wanted: list[str]) -> None:
    assert archives_last(path) == wanted


def run(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": ARCHIVE}
    command = [worker_python(), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_module_runs_as_with_plain_python_but_for_where_pyspark_is(tmp_path: Path) -> None:
    assert worker_python() != sys.executable
    (tmp_path / "shown.py").write_text(SHOWN)
    assert run(tmp_path, "-m", "shown", "-x", "y") == f"{HOME / '__init__.py'} __main__ -x y\n"
    assert run(tmp_path, "-c", SHOWN) == f"{ARCHIVE}/pyspark/__init__.py __main__\n"


def test_spark_s_workers_have_the_installed_pyspark(spark: SparkSession) -> None:
    def where(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pyspark

        for frame in frames:
            yield frame.assign(place=pyspark.__file__)[["place"]]

    (row,) = spark.range(1, numPartitions=1).mapInPandas(where, "place STRING").collect()
    assert row.place == str(HOME / "__init__.py")
