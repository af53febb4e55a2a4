"""What all tests share: a Spark session, a Kafka broker, how many examples Hypothesis tries, which tests are left out.

Hypothesis tries some examples in every run, many more in `make test-all`; tests marked slow run only there, and of
those marked ``sample(n)`` only each nth set of parameters runs elsewhere.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from tests.support import spark_jars
from tests.support.jobs import QUICK_JVM
from tests.support.kafka_broker import Broker, kafka_broker
from watersmeet.session.spark import open_spark
from watersmeet.testing.spark_group import QUICK_FILES

ALL = os.environ.get("WATERSMEET_TEST_ALL") == "1"
#: How long one test may take where Hypothesis tries forty times as many examples.
_PATIENT_SECONDS = 1_800
#: All tasks of a query in real time run at once.
_SLOTS = 32
_PATIENT = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("normal", deadline=None, max_examples=6, suppress_health_check=_PATIENT)
settings.register_profile("all", deadline=None, max_examples=500, suppress_health_check=_PATIENT)
settings.load_profile("all" if ALL else "normal")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for the whole run, set up as ``watersmeet.connect()`` does it, with the connectors' packages."""
    jars = dict.fromkeys(jar for name in ("kafka", "avro", "protobuf") for jar in spark_jars.package_jars(name))
    settings = {
        "spark.jars": ",".join(jars),
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.sql.shuffle.partitions": "2",
        **QUICK_FILES,
    }
    session = open_spark(None, (), f"local[{_SLOTS}]", settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One Kafka broker for the whole run."""
    with kafka_broker() as running:
        yield running


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if "spark" in getattr(item, "fixturenames", ()) and "spark" not in parameters:
            item.add_marker(pytest.mark.spark)
    seen: Counter[str] = Counter()
    for item in items:
        if ALL and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_PATIENT_SECONDS))
        elif not ALL and (item.get_closest_marker("slow") or not _is_sampled(item, seen)):
            item.add_marker(pytest.mark.skip(reason="slow: runs with WATERSMEET_TEST_ALL=1"))


def _is_sampled(item: pytest.Item, seen: Counter[str]) -> bool:
    """Whether a test is one of each ``sample`` of its parameter sets; ``seen`` counts those before it, by function."""
    sample = item.get_closest_marker("sample")
    name = item.nodeid.partition("[")[0]
    seen[name] += 1
    return sample is None or seen[name] % sample.args[0] == 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in spark_jars.notes.values():
        terminalreporter.write_line(line)
