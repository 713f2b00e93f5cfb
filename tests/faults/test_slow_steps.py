"""A rank of a framework that cannot say who waits for whom is slower than the others: it is named by its steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from tests.faults.recovering import demo, launched
from tests.integration.gangs import ONE, THREE, TWO
from tests.integration.headless import dttui
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)
STEPS = (
    'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo "{\\"step\\": $i, \\"rank\\": $RANK}" >> "$DTTUI_METRICS"; '
    'if [ $RANK = 1 ] && [ ! -e "$DTTUI_METRICS.cured" ]; then sleep 0.5; else sleep 0.1; fi; '
    'if [ $i = 90 ]; then touch "$DTTUI_METRICS.cured"; fi; done'
)


def test_a_rank_that_takes_longer_for_its_steps_is_named_and_taken_back_once_it_does_not(tmp_path: Path) -> None:
    """Told within 120 s, while its first 90 steps take 0.5 s each and the others' 0.1 s; taken back after that."""
    directory = launched(tmp_path, demo(), {ONE: 1, TWO: 1, THREE: 1}, STEPS, straggler_s=8)
    wait_until(lambda: len(directory.read_events(EventKind.STRAGGLER)) >= 2, "both to be told", 120)
    told, taken_back = directory.read_events(EventKind.STRAGGLER)[:2]
    assert (told.node, told.rank, told.data["severity"]) == (TWO, 1, "warning")
    assert "longer for a step than the others" in told.message
    assert told.data["share"] > 0.5
    assert (taken_back.rank, taken_back.data["severity"]) == (1, "info")
    assert taken_back.message == "rank 1 is as fast as the others again"
    assert dttui("stop", directory.job_id).returncode == 0
