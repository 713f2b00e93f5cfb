"""The isolation that every test is given."""

from __future__ import annotations

import os
from pathlib import Path

from dttui import locations


def test_no_test_sees_the_persons_own_files() -> None:
    home = Path(os.environ["HOME"])
    assert list(home.iterdir())
    for place in (locations.inventory_file(), locations.jobs_directory(), locations.wheel_cache("x86_64")):
        assert place.is_relative_to(home)
    assert locations.demo_root().is_dir()


def test_no_test_sees_the_persons_own_settings() -> None:
    kept = {"DTTUI_DEMO_ROOT"}
    names = {name for name in os.environ if name.startswith(("DTTUI_", "TEXTUAL")) or name == "NO_COLOR"}
    assert {name for name in names if not name.startswith("DTTUI_REQUIRE_")} == kept
