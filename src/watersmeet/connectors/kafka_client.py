"""Options of Kafka's Java client, which users write, as settings of librdkafka, with which workers read."""

from __future__ import annotations

import re
from collections.abc import Mapping

from watersmeet.connectors.kafka_options import CLIENT_PREFIX

# Settings with the same meaning and values: Java's name, librdkafka's name.
_SAME = {
    "bootstrap.servers": "bootstrap.servers",
    "check.crcs": "check.crcs",
    "client.dns.lookup": "client.dns.lookup",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.min.bytes": "fetch.min.bytes",
    "group.id": "group.id",
    "isolation.level": "isolation.level",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
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
# Settings that only the Java client needs.
_ONLY_JAVA = frozenset({"max.poll.records", "default.api.timeout.ms", "request.timeout.ms", "ssl.protocol"})
_PEM = ("ssl.truststore.type", "ssl.keystore.type")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram)LoginModule\s+required"
    r'\s+username="([^"\\]*)"\s+password="([^"\\]*)"\s*;\s*'
)


def settings_of_librdkafka(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the resolved options ``kafka.*`` for librdkafka; None if one of them has no exact equivalent there.

    A TLS connection needs the authority's certificate as text (PEM), because the two clients trust different stores.
    """
    found: dict[str, str] = {}
    for option, value in options.items():
        name = option.removeprefix(CLIENT_PREFIX)
        if name in _SAME:
            found[_SAME[name]] = value
        elif name == "sasl.jaas.config":
            login = _LOGIN.fullmatch(value)
            if login is None:
                return None
            found["sasl.username"], found["sasl.password"] = login.groups()
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value or "none"
        elif not (name in _ONLY_JAVA or (name in _PEM and value.upper() == "PEM")):
            return None
    protocol = found.get("security.protocol", "PLAINTEXT").upper()
    if "SSL" in protocol and "ssl.ca.pem" not in found:
        return None
    if "SASL" in protocol and (found.get("sasl.mechanisms") not in _MECHANISMS or "sasl.username" not in found):
        return None
    return found
