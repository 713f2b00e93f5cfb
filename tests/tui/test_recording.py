"""The recording that the README names: of asciinema's form, whole, and with nothing of the machine that it is of."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

RECORDING = Path(__file__).parents[2] / "docs" / "demo.cast"


def test_the_recording_shows_a_job_from_its_hosts_to_its_end() -> None:
    header, *events = map(json.loads, RECORDING.read_text(encoding="utf-8").splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, 110, 32)
    assert all(before[0] <= after[0] for before, after in pairwise(events))
    shown = "".join(text for _time, kind, text in events if kind == "o")
    places = [shown.find(words) for words in ("pytorch-dev-env", "nothing forbids a launch", "RUNNING", "SUCCEEDED")]
    assert places == sorted(places)
    assert -1 not in places
    assert re.findall(r"/(?:home|root|work|Users)/[\w.-]+", shown) == []
