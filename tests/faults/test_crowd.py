"""One bad host among many: the others' job, the disk here, and how often the bad one is listened to."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.faults.crowd import HONEST, LIES, cost_of

SECONDS = 3.0
LONGEST_S = 30.0
"""For all of a job of three seconds, on a machine on which all else runs at once."""
BREAKS = {"unknown ids", "unknown ids of 4 MiB", "values of 4 MiB", "deep nesting", "a line without end"}
"""Lies that end the link: nothing more is read of them, and each link is later than the one before."""


@pytest.mark.parametrize("lie", [HONEST, *LIES])
async def test_one_bad_host_costs_the_others_nothing_and_fills_no_disk(lie: str) -> None:
    """All others have ended with all of their logs; events are few and short, and links too."""
    with tempfile.TemporaryDirectory(prefix="crowd") as folder:
        cost = await cost_of(lie, Path(folder), 13, SECONDS, awaits_break=lie in BREAKS)
    assert cost.others_s < LONGEST_S
    assert cost.event_bytes < 300_000
    assert cost.longest_text_bytes <= 2048
    assert cost.bad_links <= 2 + cost.whole_s / 3
    assert (lie in BREAKS) == (cost.ended_by is not None)
    if lie in BREAKS:
        assert "nonsense" in str(cost.ended_by)
