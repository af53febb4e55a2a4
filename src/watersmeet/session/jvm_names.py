"""Names of the JVM that PySpark asks for at almost every call, such as that of the class with ``col``.

For each of them the JVM looks into all jars on its class path, once for every package that the name may be in, and it
is asked hundreds of times until a query has started.
"""

from __future__ import annotations

from typing import Any

_CLASSES = (
    "PythonSQLUtils",
    "PythonUtils",
    "SimplePythonFunction",
    "functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction",
    "org.apache.spark.sql.functions",
)


def keep_names(jvm: Any) -> None:
    """Ask for these names once, and keep the answers in PySpark's view of the JVM, which then asks no more."""
    for name in _CLASSES:
        setattr(jvm, name, getattr(jvm, name))
    # py4j's own class with which it compares types, at every column of a list
    jvm.py4j = jvm.py4j
    jvm.py4j.reflection = jvm.py4j.reflection
    jvm.py4j.reflection.TypeUtil = jvm.py4j.reflection.TypeUtil
