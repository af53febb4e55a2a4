"""The settings by which Hadoop reaches object stores, for what reads and writes there without it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_PREFIX = "fs.s3a."
_OF_BUCKET = f"{_PREFIX}bucket."
#: Of these, Hadoop may keep the values in a file of its own, which only it can read.
_SECRETS = ("access.key", "secret.key", "session.token")
_PLAIN = ("endpoint", "endpoint.region")
_PROVIDER, _TLS = "aws.credentials.provider", "connection.ssl.enabled"


def s3_settings(spark: SparkSession) -> dict[str, str]:
    """Hadoop's settings for S3 that say where a store is and who asks, by their full names; not its defaults."""
    configuration: Any = spark._jsparkSession.sessionState().newHadoopConf()
    settings: dict[str, str] = {}
    for prefix in (_PREFIX, *_prefixes_of_buckets(configuration)):
        for name in _PLAIN:
            settings[prefix + name] = str(configuration.getTrimmed(prefix + name) or "")
        for name in _SECRETS:
            secret = configuration.getPassword(prefix + name)
            settings[prefix + name] = "".join(map(str, secret or ())).strip()
        if "Anonymous" in (provider := str(configuration.getTrimmed(prefix + _PROVIDER) or "")):
            settings[prefix + _PROVIDER] = provider
        if configuration.getTrimmed(prefix + _TLS) == "false":
            settings[prefix + _TLS] = "false"
    return {name: value for name, value in settings.items() if value}


def _prefixes_of_buckets(configuration: Any) -> list[str]:
    """What the names of settings for one bucket begin with; a bucket's name may hold points."""
    names = (*_PLAIN, *_SECRETS, _PROVIDER, _TLS)
    found = {
        str(given).removesuffix(name)
        for given in configuration.getPropsWithPrefix(_OF_BUCKET)
        for name in names
        if str(given).endswith(f".{name}")
    }
    return sorted(f"{_OF_BUCKET}{each}" for each in found)
