"""A job in real time whose workers, daemons, fork server, JVM and driver are killed, also around an epoch's commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_time.kill_campaign.campaign import Campaign
from tests.support.kafka_broker import Broker
from tests.support.killing import Victim
from tests.support.postgres import postgres_server

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize("seed", [11, 12])
def test_a_killed_job_loses_and_doubles_nothing(broker: Broker, tmp_path: Path, seed: int) -> None:
    outcome = Campaign(tmp_path, broker, epoch=2, seed=seed).run(kills=15, victims=list(Victim))
    assert outcome.faults == [], str(outcome)


def test_a_killed_job_leaves_no_row_in_a_table_that_is_in_no_answer(broker: Broker, tmp_path: Path) -> None:
    with postgres_server() as database:
        campaign = Campaign(tmp_path, broker, epoch=4, seed=13, database=database)
        outcome = campaign.run(kills=15, victims=list(Victim))
    assert outcome.faults == [], str(outcome)
