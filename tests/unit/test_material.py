"""Material for parsers: each name in its half, with its source, its licence and what is to be read from it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

MATERIAL = Path(__file__).parents[1] / "material"
PERMITTED = ("Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "MPL-2.0", "CC0-1.0")


@pytest.mark.parametrize("kind", ["imports", "logs"])
@pytest.mark.parametrize("half", ["fit", "end"])
def test_each_is_in_the_half_of_its_hash_and_lies_here_where_its_licence_permits(kind: str, half: str) -> None:
    directory = MATERIAL / kind / half
    entries: list[dict[str, Any]] = yaml.safe_load((directory / "index.yaml").read_text())
    names = [entry["name"] for entry in entries]
    assert len(names) == len(set(names)) > 30
    for entry in entries:
        first = hashlib.sha256(entry["name"].encode()).digest()[0]
        assert half == ("fit" if first < 128 else "end"), entry["name"]
        assert entry["source"], entry["name"]
        assert entry["expect"], entry["name"]
        assert entry["kept"] == (directory / entry["file"]).is_file(), entry["name"]
        assert not entry["kept"] or entry["licence"].startswith(PERMITTED), entry["name"]
    files = {path.name for path in directory.iterdir()}
    assert files == {"index.yaml"} | {entry["file"] for entry in entries if entry["kept"]}
