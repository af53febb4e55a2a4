"""Options of Kafka's Java client, which users write, as settings of librdkafka, with which workers read and write."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

from watersmeet.connectors.kafka.options import CLIENT_PREFIX

# Settings with the same meaning and values: Java's name, librdkafka's name.
_SAME = {
    "bootstrap.servers": "bootstrap.servers",
    "client.dns.lookup": "client.dns.lookup",
    "client.id": "client.id",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.key.password": "ssl.key.password",
}
_CONSUMER = {
    "check.crcs": "check.crcs",
    "client.rack": "client.rack",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.min.bytes": "fetch.min.bytes",
    "group.id": "group.id",
    "isolation.level": "isolation.level",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
}
_PRODUCER = {
    "batch.size": "batch.size",
    "compression.type": "compression.type",
    "delivery.timeout.ms": "message.timeout.ms",
    "enable.idempotence": "enable.idempotence",
    "linger.ms": "linger.ms",
    "max.request.size": "message.max.bytes",
    "transaction.timeout.ms": "transaction.timeout.ms",
}
# Settings that only the Java client needs.
_ONLY_JAVA = frozenset({"default.api.timeout.ms", "request.timeout.ms", "ssl.protocol"})
_ONLY_JAVA_CONSUMER = _ONLY_JAVA | {"max.poll.records"}
_ONLY_JAVA_PRODUCER = _ONLY_JAVA | {"buffer.memory", "max.block.ms"}
_ALL_REPLICAS = (("kafka.acks", "all"), ("kafka.acks", "-1"))
_PEM = ("ssl.truststore.type", "ssl.keystore.type")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram)LoginModule\s+required"
    r'\s+username="([^"\\]*)"\s+password="([^"\\]*)"\s*;\s*'
)


def consumer_settings(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the resolved options ``kafka.*`` for a consumer of librdkafka; None if one has no exact equivalent there.

    A TLS connection needs the authority's certificate as text (PEM), because the two clients trust different stores.
    """
    return _settings(options, {**_SAME, **_CONSUMER}, _ONLY_JAVA_CONSUMER)


def producer_settings(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the resolved options ``kafka.*`` for a producer, as ``consumer_settings`` does for a consumer.

    A producer waits for all replicas, so ``acks`` must be ``all``.
    """
    given = {name: value for name, value in options.items() if (name, value) not in _ALL_REPLICAS}
    return _settings(given, {**_SAME, **_PRODUCER}, _ONLY_JAVA_PRODUCER)


def connection_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return those settings of a producer that every client takes."""
    return {name: value for name, value in settings.items() if name not in _PRODUCER.values()}


def _settings(options: Mapping[str, str], same: Mapping[str, str], only_java: Set[str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for option, value in options.items():
        name = option.removeprefix(CLIENT_PREFIX)
        if name in same:
            found[same[name]] = value
        elif name == "sasl.jaas.config":
            login = _LOGIN.fullmatch(value)
            if login is None:
                return None
            found["sasl.username"], found["sasl.password"] = login.groups()
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value or "none"
        elif not (name in only_java or (name in _PEM and value.upper() == "PEM")):
            return None
    protocol = found.get("security.protocol", "PLAINTEXT").upper()
    if "SSL" in protocol and "ssl.ca.pem" not in found:
        return None
    if "SASL" in protocol and (found.get("sasl.mechanisms") not in _MECHANISMS or "sasl.username" not in found):
        return None
    return found
