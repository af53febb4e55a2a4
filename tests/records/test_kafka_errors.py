"""Which errors of librdkafka may pass."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from watersmeet.errors import ConnectorError, OutageError
from watersmeet.records.kafka import answering
from watersmeet.records.kafka_errors import may_pass


@pytest.mark.parametrize(
    "code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._NOENT, KafkaError.NOT_ENOUGH_REPLICAS]
)
def test_a_broker_that_is_away(code: int) -> None:
    assert may_pass(KafkaError(code))
    with pytest.raises(OutageError, match="Kafka did not say which records topic t has"), answering("t"):
        raise KafkaException(KafkaError(code))


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
    ],
)
def test_a_broker_that_refuses(code: int) -> None:
    assert not may_pass(KafkaError(code))
    with pytest.raises(ConnectorError) as raised, answering("t"):
        raise KafkaException(KafkaError(code))
    assert type(raised.value) is ConnectorError
