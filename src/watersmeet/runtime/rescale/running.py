"""Whether a query runs in this Spark, in whichever session."""

from __future__ import annotations

import json
from typing import Any, cast

from pyspark.sql import SparkSession

from watersmeet.errors import CheckpointError
from watersmeet.runtime.storage import Storage


def refuse_running(spark: SparkSession, checkpoint: str, name: str) -> None:
    """Raise ``CheckpointError`` if a query of this Spark runs on Spark's ``checkpoint``."""
    if (id := query_id(Storage(spark), checkpoint)) is None:
        return
    shared, gateway = cast(Any, spark._jsparkSession.sharedState()), cast(Any, spark.sparkContext._gateway)
    uuid = gateway.jvm.java.util.UUID.fromString(id)
    if shared.activeStreamingQueries().containsKey(uuid):
        raise CheckpointError(f"query {name} is running in another session of this Spark", hint="stop it there first")


def query_id(storage: Storage, checkpoint: str) -> str | None:
    """The id that Spark gave the query with this checkpoint; None if it has not started."""
    text = storage.read_text(f"{checkpoint}/metadata")
    return None if text is None else str(json.loads(text)["id"])
