"""The first frame of the screen: the environments as they were known last, before anything that plans is imported."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dttui import locations
from dttui.fleet.last_known import keep_last_known, read_last_known
from dttui.inventory import Inventory, load_inventory
from tests.tui.fake_fleet import facts, make_app, make_inventory
from tests.unit.cli.test_light_verbs import PLANNER, SSH, among

LIGHT = {
    "dttui.planning.cost",
    "dttui.planning.cost.correction",
    "dttui.planning.cost.efficiency",
    "dttui.planning.cost.hardware",
    "dttui.transport.ssh.agent_socket",
}
"""The tables that a GPU's name is looked up in, and whether an ssh-agent goes with the login session."""
LOOK = """
import asyncio, sys
from pathlib import Path
from dttui.inventory import load_inventory
from dttui.tui.app import DttuiApp, TuiOptions

class Silent:
    async def connect(self, *_arguments):
        await asyncio.Event().wait()
    async def close(self):
        pass

async def look():
    app = DttuiApp(TuiOptions(load_inventory("inventory.yaml"), Path("inventory.yaml"), Silent()))
    begin, seen = app._begin, {}
    async def held():
        text = "\\n".join(strip.text for strip in app.screen._compositor.render_strips())
        seen.update(text=text, screen=type(app.screen).__name__, modules=list(sys.modules))
        await begin()
    app._begin = held
    async with app.run_test(size=(120, 40)) as pilot:
        while not (seen and type(app.screen).__name__ == "ComposeScreen" and app.focused):
            await pilot.pause(0.01)
        print(seen["text"])
        print(seen["screen"], type(app.screen).__name__, app.focused.id)
        print(*before)

async def bounded():
    await asyncio.wait_for(look(), 60)

before = []
import importlib
from dttui.tui import app as module
whole = module.import_module
def noted(name):
    before.extend(sys.modules)
    return whole(name)
module.import_module = noted
asyncio.run(bounded())
"""


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inventory:
    monkeypatch.chdir(tmp_path)
    hosts = "\n".join(f"  - {{name: {name}, host: {name}.example.org}}" for name in ("near", "far"))
    Path("inventory.yaml").write_text(f"environments:\n{hosts}\n")
    return load_inventory("inventory.yaml")


def test_hosts_are_on_the_screen_before_planner_frameworks_and_ssh_are_imported(inventory: Inventory) -> None:
    gpus = facts(make_inventory().environments[0], 1e9, 1.0)
    keep_last_known([(inventory.environments[1], gpus)])
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    *shown, screens, modules = done.stdout.splitlines()
    assert screens == "OpeningScreen ComposeScreen environments"
    (near,) = (line for line in shown if "near " in line)
    (far,) = (line for line in shown if "far " in line)
    assert "connecting" in near
    assert "connecting" in far
    assert f"{len(gpus.gpus)}×A100" in far
    assert "×" not in near
    assert among(set(modules.split()), (*PLANNER, *SSH)) <= LIGHT


async def test_what_hosts_said_is_kept_for_the_next_start(inventory: Inventory) -> None:
    environment = inventory.environments[0]
    told = facts(make_inventory().environments[0], 1e9, 1.0)
    app = make_app(inventory)
    async with app.run_test():
        app.fleet.heard[environment.name] = told
    assert read_last_known(inventory.environments) == {"near": told}
    assert make_app(inventory).fleet.statuses["near"].facts == told
    assert locations.last_known_file().stat().st_mode & 0o077 == 0


def test_a_host_that_only_bears_the_name_is_another(inventory: Inventory) -> None:
    near = inventory.environments[0]
    told = facts(make_inventory().environments[0], 1e9, 1.0)
    keep_last_known([(near, told)])
    assert read_last_known([near.model_copy(update={"host": "10.0.0.9"})]) == {}
    keep_last_known([(near, replace(told, cpu_count=3))])
    assert read_last_known([near])["near"].cpu_count == 3


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2, "hosts": {}}', '{"version": 1, "hosts": 3}', "[" * 9999]
)
def test_a_damaged_file_of_what_was_known_keeps_nobody_from_the_screen(inventory: Inventory, text: str) -> None:
    path = locations.last_known_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert read_last_known(inventory.environments) == {}
    keep_last_known([(inventory.environments[0], facts(make_inventory().environments[0], 1e9, 1.0))])
    assert list(read_last_known(inventory.environments)) == ["near"]
