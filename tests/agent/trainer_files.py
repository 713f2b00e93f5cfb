"""An attempt whose logs tests write, and what was found in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dtagent.locations import AttemptFiles

OUTPUT = Path(__file__).with_name("trainer_output")


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    found = AttemptFiles(tmp_path / "job" / "0")
    found.logs.mkdir(parents=True)
    return found


def written(files: AttemptFiles) -> list[dict[str, Any]]:
    if not files.trainer.exists():
        return []
    return [body for body in map(json.loads, files.trainer.read_text().splitlines()) if "at" not in body]
