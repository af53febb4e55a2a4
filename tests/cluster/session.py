"""A session on the cluster's driver."""

from __future__ import annotations

import os

import watersmeet
from tests.cluster.lake import STORE
from tests.support.jobs import QUICK_JVM
from watersmeet.session.session import Session


def connect(workspace: str, **more: str) -> Session:
    """Open a session on the cluster; ``more`` are settings of Spark, with ``__`` for a point."""
    settings = {**spark_settings(), **{name.replace("__", "."): value for name, value in more.items()}}
    return watersmeet.connect(master=os.environ["CLUSTER_MASTER"], workspace=workspace, config=settings)


def spark_settings() -> dict[str, str]:
    """Settings of Spark on the cluster."""
    return {
        "spark.driver.host": os.environ["SPARK_LOCAL_IP"],
        "spark.executor.memory": "700m",
        "spark.executor.cores": "2",
        "spark.sql.shuffle.partitions": "4",
        **{f"spark.{process}.extraJavaOptions": QUICK_JVM for process in ("driver", "executor")},
        **(_store_settings(STORE) if STORE else {}),
    }


_S3A = {
    "path.style.access": "true",
    "connection.ssl.enabled": "false",
    # it needs the SDK's own copy of Netty, which is in a jar of 600 MB only
    "optimized.copy.from.local.enabled": "false",
    # no requests to look for what would be overwritten, or for folders, which a store does not have
    "performance.flags": "create,mkdir,delete",
}


def _store_settings(store: str) -> dict[str, str]:
    jars = os.environ["CLUSTER_JARS"]
    return {
        **{f"spark.{process}.extraClassPath": jars for process in ("driver", "executor")},
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in _S3A.items()},
        "spark.hadoop.fs.s3a.endpoint": store,
    }
