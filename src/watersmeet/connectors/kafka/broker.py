"""Questions to a Kafka broker before a query starts.

A missing topic or an unreachable broker is then one sentence within ``CHECK_SECONDS`` instead of a failed query.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.connectors.kafka.options import CLIENT_PREFIX, KafkaOptions, client_options, options_of
from watersmeet.connectors.packages import Package, require_package
from watersmeet.errors import ConfigError, ConnectorError, OutageError
from watersmeet.settings.secrets import hide, masked_value, resolve

CHECK_SECONDS = 9.0
"""The longest that asking the broker before a query may take."""
_CONNECT_SECONDS = 2.0
_ADMIN_PREFIXES = ("security.", "sasl.", "ssl.", "client.", "socket.")


def partitions(spark: SparkSession, options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ``_part`` names of the topic's records, in the order of the partitions.

    Within ``CHECK_SECONDS`` this raises ``OutageError`` where no broker answers, and ``ConnectorError`` where the topic
    does not exist or the broker refuses.
    """
    given = options_of(options)
    require_package(spark, Package.KAFKA)
    deadline = time.monotonic() + CHECK_SECONDS
    _check_reachable(given)
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    admin = None
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(_admin_settings(jvm, given))
        names = jvm.java.util.ArrayList()
        names.add(given.topic)
        described = admin.describeTopics(names).allTopicNames()
        left = max(1, int((deadline - time.monotonic()) * 1000))
        topic = described.get(left, jvm.java.util.concurrent.TimeUnit.MILLISECONDS).get(given.topic)
        numbers = sorted(int(each.partition()) for each in topic.partitions())
    except Py4JJavaError as error:
        raise _failure(error.java_exception, given) from None
    finally:
        if admin is not None:
            admin.close(jvm.java.time.Duration.ZERO)
    return tuple(f"{given.topic}-{number}" for number in numbers)


def _admin_settings(jvm: Any, options: KafkaOptions) -> Any:
    wanted = {name.removeprefix(CLIENT_PREFIX): value for name, value in client_options(options).items()}
    settings = jvm.java.util.Properties()
    for name, value in wanted.items():
        if name == "bootstrap.servers" or name.startswith(_ADMIN_PREFIXES):
            settings.setProperty(name, value)
    settings.setProperty("request.timeout.ms", "3000")
    settings.setProperty("default.api.timeout.ms", "6000")
    return settings


def _check_reachable(options: KafkaOptions) -> None:
    """Raise ``OutageError`` if no broker accepts a connection. Kafka's client would retry and log each attempt."""
    brokers = resolve(options.brokers)
    by_reference = brokers != options.brokers
    deadline = time.monotonic() + 2 * _CONNECT_SECONDS
    reasons = []
    for address in filter(None, (part.strip() for part in brokers.split(","))):
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit() or not 0 < int(port) < 65536:
            shown = options.shown_brokers if by_reference else masked_value("brokers", address)
            raise ConfigError(f"option brokers: {shown!r} is not host:port")
        left = min(_CONNECT_SECONDS, deadline - time.monotonic())
        if left <= 0:
            break
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=left).close()
            return
        except OSError as error:
            reasons.append(f"{masked_value('brokers', address)}: {error.strerror or 'no answer in time'}")
    told = "no answer" if by_reference or not reasons else reasons[0].rpartition(": ")[2]
    raise OutageError(
        f"no Kafka broker can be reached at {options.shown_brokers}",
        detail=None if by_reference else "; ".join(reasons) or None,
        hint="is the broker running, and is its address right?",
        waits_for=f"Kafka at {options.shown_brokers}: {told}",
    )


def _failure(exception: Any, options: KafkaOptions) -> ConnectorError:
    """Return the error to report for an exception of Kafka's client."""
    cause = exception.getCause() or exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    kind = str(cause.getClass().getSimpleName())
    at = f"the Kafka broker at {options.shown_brokers}"
    if kind == "UnknownTopicOrPartitionException":
        return ConnectorError(f"topic {options.topic!r} does not exist on {at}", hint="create it, or correct its name")
    if kind == "TimeoutException":
        return OutageError(
            f"{at} did not answer in time",
            hint="is it a Kafka broker, and do the kafka.security.* options fit it?",
            waits_for=f"Kafka at {options.shown_brokers}: no answer in time",
        )
    said = hide(str(cause.getMessage() or kind), options.client).splitlines()[0]
    return ConnectorError(f"{at} refused: {said}")
