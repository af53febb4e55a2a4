"""A job in real time whose workers, daemons, fork server, JVM and driver are killed, also around an epoch's commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_time.kill_campaign.campaign import Campaign
from tests.support.kafka_broker import Broker
from tests.support.killing import Victim

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize("seed", [11, 12])
def test_a_killed_job_loses_and_doubles_nothing(broker: Broker, tmp_path: Path, seed: int) -> None:
    outcome = Campaign(tmp_path, broker, epoch=2, seed=seed).run(kills=15, victims=list(Victim))
    assert outcome.faults == [], str(outcome)
