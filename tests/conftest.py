"""What all tests share: isolation from the person's own settings, and the fixtures of the test cluster."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.clock import TICK_S, Clock, Unhurried
from tests.lab.deployed import deployed
from tests.lab.fixtures import breakable_lab3, can_have_lab, lab3
from tests.torch_forkserver import torch_forkserver

__all__ = ["breakable_lab3", "can_have_lab", "deployed", "lab3", "torch_forkserver"]

# The same examples in every run, and nothing kept of them; the time that matters is asserted by the tests themselves.
settings.register_profile(
    "dttui",
    database=None,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("dttui")


def pytest_configure() -> None:
    """Let what tests start train without torch's compiler, and ctrl+c and a hang-up do their work in any case.

    Where the run was started in the background, or by `nohup`, these are ignored, by children too.
    """
    os.environ["LIGHT_IMPORTS"] = "1"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


COMPUTING = ("tests/tui/", "tests/unit/")
"""Where tests take a core from their beginning to their end; elsewhere they wait for other processes half the time."""


def in_turns(groups: Sequence[str]) -> list[str]:
    """Mix what waits and what computes, so that no time is all of one kind; isolated hosts take longest, and begin."""
    computing = [group for group in groups if group.startswith(COMPUTING)]
    waiting = sorted(
        (group for group in groups if not group.startswith(COMPUTING)), key=lambda group: not group.startswith("lab")
    )
    places = {group: place / len(waiting) for place, group in enumerate(waiting)}
    places |= {group: (place + 0.5) / len(computing) for place, group in enumerate(computing)}
    return sorted(places, key=places.__getitem__)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin elsewhere: what one has compiled with its assertions, the others find in its file."""
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker is not None and isinstance(collector, pytest.Directory):
        start = int(worker["workerid"].removeprefix("gw")) * len(report.result) // worker["workercount"]
        report.result = report.result[start:] + report.result[:start]
    return report


@pytest.hookimpl(tryfirst=True)  # As xdist reads the marks in this same hook.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep on one worker what shares a fixture: the tests of a file, and all those of the shared isolated hosts.

    A file may name another group: its worker then has isolated hosts of its own.
    """
    is_thorough = os.environ.get("DTTUI_TEST_THOROUGH") == "1"
    left_out = [] if is_thorough else [item for item in items if item.get_closest_marker("thorough")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.path)  # As each worker has begun elsewhere, and all have to be of one order.
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if named := item.get_closest_marker("xdist_group"):
            group = str(named.args[0])
        else:
            group = "lab" if "lab3" in getattr(item, "fixturenames", ()) else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))
        groups.setdefault(group, []).append(item)
    if hasattr(config, "workerinput"):
        items[:] = [item for group in in_turns(list(groups)) for item in groups[group]]


def pytest_collection_finish() -> None:
    """Search for garbage no more among what was imported and collected, and elsewhere less often.

    It takes a third of the time of the tests of screens, whose widgets are all in circles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_sessionfinish() -> None:
    """Search once, while what is found is still reported, where pytest searches five times through all there is."""
    gc.collect()
    gc.freeze()


_PREFIXES = ("DTTUI_", "XDG_", "TEXTUAL", "LC_")
_KEPT = ("DTTUI_REQUIRE_", "TEXTUAL_SNAPSHOT_TEMPDIR")
_NAMES = (
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLORTERM",
    "LANG",
    "LANGUAGE",
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS",
)


@pytest.fixture(scope="session")
def homes() -> Iterator[Path]:
    """Where the tests' homes are, by a short path: sockets are made below them, and their paths hold 107 bytes."""
    directory = Path(tempfile.mkdtemp(prefix="dttui-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(autouse=True)
def isolated_environment(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test a home of its own and none of the person's settings."""
    for name in os.environ:
        if name in _NAMES or (name.startswith(_PREFIXES) and not name.startswith(_KEPT)):
            monkeypatch.delenv(name)
    home = Path(tempfile.mkdtemp(prefix="", dir=homes))
    monkeypatch.setenv("HOME", str(home))
    for kind in ("CONFIG", "STATE", "CACHE", "DATA"):
        directory = home / kind.lower()
        directory.mkdir()
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(directory))
    monkeypatch.setenv("LANG", "C.UTF-8")
    # Tests that run at once on this machine all have the same GPUs of the stub.
    monkeypatch.setenv("DTAGENT_GPU_LOCKS", str(home / "gpu-locks"))
    # Short: sockets are made below it, and their paths hold 107 bytes at most.
    demo_root = tempfile.mkdtemp(prefix="dttui-")
    monkeypatch.setenv("DTTUI_DEMO_ROOT", demo_root)
    yield
    shutil.rmtree(demo_root, ignore_errors=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The monotonic time that all of this process sees."""
    found = Clock()
    monkeypatch.setattr(time, "monotonic", found)
    return found


@pytest.fixture
async def unhurried(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Let no monotonic time pass, for loops neither, while a busy machine does not let the test run."""
    monkeypatch.setattr(time, "monotonic", Unhurried(time.monotonic))

    async def tick() -> None:
        while True:  # noqa: ASYNC110 - the clock is to be asked often
            await asyncio.sleep(TICK_S)

    ticking = asyncio.create_task(tick())
    yield
    ticking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ticking
