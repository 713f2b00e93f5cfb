"""How fast hosts computed, by the reports of the newest attempt that tells."""

from __future__ import annotations

import json
from pathlib import Path

from dttui.jobs.measured_speeds import measured_speeds


def line(attempt: int, node: str, rank: int, speed: object) -> str:
    return json.dumps({"rank": rank, "extra": {"rank_samples_per_s": speed}, "source": [attempt, node, "m", 0]}) + "\n"


def test_the_newest_attempt_that_tells_counts_and_of_a_node_the_median(tmp_path: Path) -> None:
    earlier, own = tmp_path / "earlier.jsonl", tmp_path / "own.jsonl"
    earlier.write_text(line(0, "a", 0, 7.0))
    assert measured_speeds([earlier, own]) == {"a": 7.0}
    own.write_text(
        line(1, "a", 0, 1.0)
        + "".join(line(2, "a", rank, speed) for rank, speed in ((0, 4.0), (1, 5.0), (0, 60.0)))
        + line(2, "b", 2, 2.5)
        + line(2, "b", 2, 0.0)
        + '{"rank": 0, "loss": 2.0, "source": [3, "a", "m", 0]}\n{"torn'
    )
    assert measured_speeds([earlier, own]) == {"a": 5.0, "b": 2.5}
    assert measured_speeds([]) == measured_speeds([tmp_path / "none.jsonl"]) == {}
