"""Hadoop's settings for S3, as the driver reads them for its workers."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from watersmeet.runtime.hadoop_settings import s3_settings
from watersmeet.settings.secrets import hide

pytestmark = pytest.mark.spark


def test_what_says_where_a_store_is_and_who_asks(spark: SparkSession) -> None:
    given = {
        "fs.s3a.endpoint": " http://store:9000 ",
        "fs.s3a.secret.key": "s3cr3t-for-store",
        "fs.s3a.bucket.other.endpoint.region": "eu-central-1",
        "fs.s3a.bucket.with.points.access.key": "reader",
    }
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in {**given, "fs.s3a.threads.max": "3"}.items():
        hadoop.set(name, value)
    try:
        found = s3_settings(spark)
    finally:
        for name in (*given, "fs.s3a.threads.max"):
            hadoop.unset(name)
    assert {name: found.get(name) for name in given} == {**given, "fs.s3a.endpoint": "http://store:9000"}
    assert "fs.s3a.threads.max" not in found
    assert hide("the key s3cr3t-for-store is wrong") == "the key *** is wrong"
