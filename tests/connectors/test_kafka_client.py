"""Which options of Kafka's Java client workers can read and write with."""

from __future__ import annotations

import pytest

from watersmeet.connectors.kafka.client import consumer_settings, producer_settings

SERVERS = {"kafka.bootstrap.servers": "b:9092"}
LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p;{}";'


def test_options_with_an_equal_are_translated() -> None:
    more = {
        "kafka.fetch.max.wait.ms": "50",
        "kafka.max.poll.records": "10",
        "kafka.isolation.level": "read_uncommitted",
    }
    assert consumer_settings({**SERVERS, **more}) == {
        "bootstrap.servers": "b:9092",
        "fetch.wait.max.ms": "50",
        "isolation.level": "read_uncommitted",
    }


def test_a_login_over_tls() -> None:
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": LOGIN,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    assert consumer_settings({**SERVERS, **given}) == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "p;{}",
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----",
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize(
    "given",
    [
        {"kafka.sasl.kerberos.service.name": "kafka"},
        {"kafka.security.protocol": "SSL"},  # the authorities that Java trusts
        {"kafka.ssl.truststore.location": "/x.jks"},
        {"kafka.ssl.truststore.type": "JKS"},
        {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "GSSAPI"},
        {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"},
        {"kafka.sasl.jaas.config": "com.example.LoginModule required;"},
    ],
)
def test_all_else_is_left_to_spark(given: dict[str, str]) -> None:
    assert consumer_settings({**SERVERS, **given}) is None


def test_options_of_a_producer() -> None:
    more = {"kafka.compression.type": "lz4", "kafka.delivery.timeout.ms": "9000", "kafka.max.block.ms": "5"}
    assert producer_settings({**SERVERS, **more, "kafka.acks": "all"}) == {
        "bootstrap.servers": "b:9092",
        "compression.type": "lz4",
        "message.timeout.ms": "9000",
    }


@pytest.mark.parametrize(
    "given", [{"kafka.acks": "1"}, {"kafka.partitioner.class": "com.example.P"}, {"kafka.security.protocol": "SSL"}]
)
def test_spark_writes_with_all_else(given: dict[str, str]) -> None:
    assert producer_settings({**SERVERS, **given}) is None
