"""Has what ranks print looked through for metrics at an interval, whether or not somebody follows."""

from __future__ import annotations

import asyncio
import logging

from dtagent.attempts.census import Census
from dtagent.calls import Workers
from dtagent.logs.trainer_metrics import Training

LOG = logging.getLogger("dtagent")
INTERVAL_S = 1.0


async def watch_training(training: Training, census: Census) -> None:
    """Look at the attempts that run, until cancelled; a command that trains by itself shows no ranks."""
    workers = Workers("training", 1)
    failure = ""
    while True:
        await asyncio.sleep(INTERVAL_S)
        try:
            await workers.run(lambda: training.look_at_all(census.running()))
            failure = ""
        except Exception as error:  # The top of a worker: told when it begins or changes.
            if repr(error) != failure:
                failure = repr(error)
                LOG.exception("cannot look for metrics")
