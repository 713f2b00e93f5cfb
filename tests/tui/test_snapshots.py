"""Pictures of the screens against those that were looked at; `--snapshot-update` takes them anew, to be looked at."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import time_machine
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from dttui.i18n import set_language
from dttui.inventory.models import Inventory
from dttui.spec.models import Model
from dttui.tui.environment_pane import EnvironmentPane
from tests.tui import job_files
from tests.tui.fake_checks import trouble
from tests.tui.fake_fleet import job, make_app, make_inventory, set_states
from tests.tui.job_files import JobWriter
from tests.tui.looking import follow, settle
from tests.tui.screens import (
    CHOSEN,
    HOST_KEY,
    SIZES,
    Steps,
    ask,
    import_hosts,
    mistype,
    nothing,
    on_jobs,
    press,
    section,
    show_file,
    tab,
)

NOW = "2026-09-14 10:00:00Z"
HOME = "/home/someone"
DRAFT = job(*CHOSEN)
COSTED = job(*CHOSEN, model=Model(parameters=7e9, precision="bf16"))
ONE_ZONE = job("a100-17", "a100-18", model=Model(parameters=7e9, precision="bf16"))
DEEPSPEED = job(*CHOSEN, framework="deepspeed", framework_options={"gradient_accumulation_steps": 2})

Options = dict[str, Any]
EMPTY: Options = {"inventory": Inventory(), "inventory_path": Path(HOME, "inventory.yaml")}


@dataclass(frozen=True)
class Picture:
    """What is on screen, and how it looks there."""

    make: Callable[[Inventory], Options]
    """Makes the jobs of it; returns the options of the app."""
    steps: Steps = nothing
    size: str = "120x40"
    language: str = "en"
    theme: str = "dusk"


def given(**options: Any) -> Callable[[Inventory], Options]:
    """Return what makes no jobs."""
    return lambda _inventory: options


def attached(
    make: Callable[..., JobWriter], *, is_over: bool = False, plain: bool = False
) -> Callable[[Inventory], Options]:
    """Return what makes a job that is on screen."""

    def options(inventory: Inventory) -> Options:
        writer = make(DRAFT, inventory)
        if not is_over:
            writer.watch()
        return {"attach": writer.directory, "plain": plain}

    return options


def hosts_to_import(_inventory: Inventory) -> Options:
    """Leave no environments, and the person's own hosts."""
    folder = Path.home() / ".ssh"
    folder.mkdir()
    (folder / "config").write_text("Host gpu1 gpu2 a100-17 a100-18\n", encoding="utf-8")
    return EMPTY


def some_jobs(inventory: Inventory) -> Options:
    """Make a few jobs that went well, one that failed and one that runs."""
    for name, pace in (("gpt-base", 1.0), ("gpt-lr-3e-3", 1.6)):
        job_files.trained(job(*CHOSEN, name=name), inventory, pace)
    job_files.failed(job(*CHOSEN, name="vision"), inventory)
    job_files.running(DRAFT, inventory, took_s=20.0).watch()
    return {}


COMPOSE, RUN = Picture(given(draft=COSTED)), Picture(attached(job_files.running))
FAILED = Picture(attached(job_files.failed, is_over=True))
JOBS = Picture(some_jobs, press("j"))
HOSTS = Picture(given(), press("h", "down", "down", "down"))
PICTURES = {
    "compose": COMPOSE,
    "compose-narrow": replace(COMPOSE, size="80x24"),
    "compose-wide": replace(COMPOSE, size="200x60"),
    "compose-chinese": replace(COMPOSE, language="zh"),
    "compose-empty": Picture(given(**EMPTY)),
    "compose-refused": Picture(given(), press("space", "ctrl+l"), "80x24"),
    "compose-plain": Picture(given(draft=COSTED, plain=True)),
    "section": Picture(given(draft=COSTED), section("recovery")),
    "options-wrong": Picture(given(draft=DEEPSPEED), press("t", "tab", *"x", "enter"), "80x24"),
    "recommend": Picture(given(draft=ONE_ZONE), press("d")),
    "estimate": Picture(given(draft=ONE_ZONE), press("e")),
    "preview": Picture(given(draft=DEEPSPEED), show_file),
    "job-text-wrong": Picture(given(draft=COSTED), mistype, language="zh"),
    "checks": Picture(given(draft=DRAFT, check=trouble), press("c")),
    "host-key": Picture(given(draft=DRAFT), ask(HOST_KEY), "80x24"),
    "import": Picture(hosts_to_import, import_hosts),
    "run": RUN,
    "run-narrow": replace(RUN, size="80x24"),
    "run-wide": replace(RUN, size="200x60"),
    "run-chinese": replace(RUN, language="zh"),
    "run-contrast": replace(RUN, theme="contrast"),
    "run-waiting": Picture(attached(job_files.waiting)),
    "run-failed": FAILED,
    "run-failed-narrow": replace(FAILED, size="80x24", language="zh"),
    "run-logs": replace(FAILED, steps=tab("logs")),
    "jobs": JOBS,
    "jobs-narrow": replace(JOBS, size="80x24", language="zh"),
    "jobs-empty": Picture(given(), press("j")),
    "compare": Picture(some_jobs, on_jobs("slash", *"state:succeeded", "enter", "A", "c")),
    "hosts": HOSTS,
    "hosts-narrow": replace(HOSTS, size="80x24", language="zh"),
    "palette": Picture(given(draft=DRAFT), press("ctrl+p", *"node")),
    "settings": Picture(given(draft=DRAFT), press("comma")),
}


@pytest.fixture(autouse=True)
def fixed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have it be always the same time, and names be drawn by no chance."""
    names = itertools.count(1)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr("dttui.jobs.directory.os.urandom", lambda count: next(names).to_bytes(count, "big"))
    with time_machine.travel(NOW, tick=False):
        yield


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A home whose path is as long as that on the pictures."""
    path = tempfile.mkdtemp(prefix="", dir="/tmp")
    assert len(path) == len(HOME)
    monkeypatch.setenv("HOME", path)
    for kind in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", f"{path}/.{kind.lower()}")
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("name", PICTURES)
def test_a_screen_looks_as_it_did(
    snap_compare: Callable[..., bool], home: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    picture = PICTURES[name]
    set_language(picture.language)
    inventory = make_inventory(chinese=picture.language == "zh")
    app = make_app(**{"inventory": inventory, "theme": picture.theme, **picture.make(inventory)})
    draw = app.export_screenshot
    monkeypatch.setattr(app, "export_screenshot", lambda **how: draw(**how).replace(home, HOME))

    async def show(pilot: Pilot[None]) -> None:
        set_states(app)
        await settle(app, pilot)
        if app.screen.query(EnvironmentPane):
            await follow(app, pilot)
        await picture.steps(app, pilot)
        await settle(app, pilot)
        for field in (*app.screen.query(Input), *app.screen.query(TextArea)):
            field.cursor_blink = False

    assert snap_compare(app, terminal_size=SIZES[picture.size], run_before=show)
