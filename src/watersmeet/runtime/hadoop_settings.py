"""The settings by which Hadoop reaches object stores, for what reads and writes there without it."""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from watersmeet.filesystems import S3_BUCKET_PREFIX, S3_CREDENTIALS, S3_OTHERS, S3_PREFIX
from watersmeet.settings import secrets

_log = logging.getLogger(__name__)


def s3_settings(spark: SparkSession) -> dict[str, str]:
    """Hadoop's settings for S3 that say where a store is and who asks, by their full names."""
    configuration: Any = spark._jsparkSession.sessionState().newHadoopConf()
    settings: dict[str, str] = {}
    for prefix in (S3_PREFIX, *_prefixes_of_buckets(configuration)):
        settings |= {prefix + name: str(configuration.getTrimmed(prefix + name) or "") for name in S3_OTHERS}
        settings |= {prefix + name: _secret(configuration, prefix + name) for name in S3_CREDENTIALS}
    return {name: value for name, value in settings.items() if value}


def _secret(configuration: Any, name: str) -> str:
    """Return a credential, which may be kept in a file of Hadoop's that only Hadoop can read."""
    try:
        value = "".join(map(str, configuration.getPassword(name) or ())).strip()
    except Py4JJavaError as error:
        _log.warning("%s cannot be read, so workers do not have it: %s", name, error.java_exception.getMessage())
        return ""
    if value:
        secrets.remember({name: value})
    return value


def _prefixes_of_buckets(configuration: Any) -> list[str]:
    """What the names of settings for one bucket begin with; a bucket's name may hold points."""
    found = {
        str(given).removesuffix(name)
        for given in configuration.getPropsWithPrefix(S3_BUCKET_PREFIX)
        for name in (*S3_OTHERS, *S3_CREDENTIALS)
        if str(given).endswith(f".{name}")
    }
    return sorted(S3_BUCKET_PREFIX + each for each in found)
