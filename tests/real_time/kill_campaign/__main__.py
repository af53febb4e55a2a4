"""Kill a job in real time again and again, and say what it lost or doubled.

    python -m tests.real_time.kill_campaign --kills 200 --epoch 2 --seed 1

Takes some five seconds for a kill of a worker, and fifteen for one that ends the driver.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from tests.real_time.kill_campaign.campaign import Campaign
from tests.support.kafka_broker import kafka_broker
from tests.support.killing import Victim
from tests.support.postgres import postgres_server


def main() -> None:
    """Run a campaign that the arguments describe; the exit code is 1 if it has found a fault."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--kills", type=int, default=20)
    arguments.add_argument("--epoch", type=float, default=2.0, help="seconds")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--victims", nargs="+", choices=list(Victim), default=list(Victim), metavar="VICTIM")
    arguments.add_argument("--table", action="store_true", help="write the nested counts to PostgreSQL, not to a topic")
    arguments.add_argument("--folder", type=Path, help="where the checkpoint and the job's log are kept")
    options = arguments.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="watersmeet-kills-"))
    print(f"the job's log is {folder}/job.log", flush=True)
    with kafka_broker() as broker, postgres_server() if options.table else nullcontext() as database:
        campaign = Campaign(folder, broker, options.epoch, options.seed, database)
        outcome = campaign.run(options.kills, [Victim(each) for each in options.victims], partial(print, flush=True))
    print(outcome)
    raise SystemExit(bool(outcome.faults))


if __name__ == "__main__":
    main()
