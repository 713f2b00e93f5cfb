"""Everything a host can say, spoilt by an agent that lies: into every output of the command line and every screen."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import TabbedContent

from dttui import jobs
from dttui.fleet.states import EnvironmentState
from dttui.inventory.reader import load_inventory
from dttui.sanitize import clean
from dttui.transport.routes import Transports
from tests.faults.leftovers import assert_nothing_is_left
from tests.faults.lying_agent import POISON
from tests.integration.headless import dttui, shell_job
from tests.lab.hosts import Lab
from tests.tui.fake_fleet import make_app
from tests.tui.looking import follow, screen_text, settle, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]

ROOT = "/var/tmp/dtagent-0"
LIAR = Path(__file__).with_name("lying_agent.py")
DEADLINE_S = 60.0
"""Of each command, and of the screen to know all hosts."""
MARKUP = "[/foo]"
"""What is left of the poison is text, and shown as it is; this is where it begins."""


@pytest.fixture
def lying(deployed: Lab, tmp_path: Path) -> Iterator[Path]:
    """An inventory of gpu1 and gpu2, whose agents spoil every word for people that they say."""
    hosts = [deployed["gpu1"], deployed["gpu2"]]
    honest = {host.name: host.run(["readlink", f"{ROOT}/current"]).stdout.decode().strip() for host in hosts}
    for host in hosts:
        real = host.run(["readlink", "-f", f"{ROOT}/current"]).stdout.decode().strip()
        host.run(["mkdir", "-p", f"{ROOT}/liar/bin"])
        host.run(["tee", f"{ROOT}/liar/liar.py"], input=LIAR.read_bytes())
        bridge = f"#!/bin/sh\nexec {real}/bin/python -I {ROOT}/liar/liar.py words -\n"
        host.run(["tee", f"{ROOT}/liar/bin/python"], input=bridge.encode())
        host.run(["chmod", "755", f"{ROOT}/liar/bin/python"])
        host.run(["ln", "-sfn", "liar", f"{ROOT}/current"])
    deployed.inventory(tmp_path / "undeclared.yaml", resources=None)
    yield deployed.inventory(tmp_path / "inventory.yaml")
    for host in hosts:
        host.run(["ln", "-sfn", honest[host.name], f"{ROOT}/current"])
        host.run(["rm", "-rf", f"{ROOT}/liar"])


def said(*arguments: str | Path, codes: tuple[int, ...] = (0,)) -> str:
    """Return what a command printed, all of it harmless as it is."""
    done = dttui(*arguments, deadline_s=DEADLINE_S)
    printed = done.stdout + done.stderr
    assert done.returncode in codes, printed
    assert clean(printed) == printed, arguments
    assert "internal error" not in printed
    assert 'Traceback (most recent call last):\n  File "/' not in printed.replace("/opt/train", "")
    assert "<class" not in printed
    return printed


async def test_nothing_a_host_says_drives_a_terminal_forges_markup_or_fills_a_format(
    deployed: Lab, lying: Path, tmp_path: Path
) -> None:
    """Each command within 60 s, no `internal error`; of the job that failed nothing is left."""
    assert "gpu1" in said("envs", "--inventory", lying)
    assert MARKUP in said("envs", "--inventory", lying, "--output", "json")
    shown = shlex.quote(POISON)
    command = f"printf '%s\\n' {shown}; printf '%s\\n' {shown} >&2; echo '{{\"step\": 1}}' >> /tmp/{shown}; exit 3"
    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, command)
    report = said("--apply", job, "--inventory", lying, "--lang", "zh", codes=(100,))
    assert MARKUP in report
    job_id = json.loads(said("ps", "--all", "--output", "json"))[0]["job_id"]
    for form in ("human", "json"):
        for verb in ("status", "diagnose", "logs"):
            assert MARKUP in said(verb, job_id, "--output", form, codes=(0, 100)), verb
    directory = jobs.find(job_id)
    assert_nothing_is_left(directory, deployed)
    app = make_app(attach=directory)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        for tab in range(1, len(app.screen.query_one(TabbedContent).query("TabPane")) + 1):
            await pilot.press(str(tab))
            await settle(app, pilot)
            assert clean(screen_text(app)) == screen_text(app)
            if app.screen.query_one(TabbedContent).active != "loss":  # Which has no metrics to show.
                assert MARKUP in screen_text(app)


async def test_the_screen_shows_lying_hosts_as_text(lying: Path) -> None:
    """Within 60 s all hosts are known, on a large and on a small screen; leaving ends every connection."""
    inventory = load_inventory(lying.with_name("undeclared.yaml"))
    app = make_app(inventory, transport=Transports())
    async with app.run_test(size=(120, 40)) as pilot:
        known = (EnvironmentState.IDLE, EnvironmentState.BUSY)

        def are_known() -> bool:
            return len(app.fleet.statuses) == 3 and all(item.state in known for item in app.fleet.statuses.values())

        await until(pilot, are_known, "all hosts to be known", DEADLINE_S)
        await follow(app, pilot)
        assert clean(screen_text(app)) == screen_text(app)
        assert MARKUP in screen_text(app)
        await pilot.resize_terminal(80, 24)
        await settle(app, pilot)
        assert clean(screen_text(app)) == screen_text(app)
