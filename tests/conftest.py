"""What all tests share: isolation from the person's own settings, and the fixtures of the test cluster."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.lab.deployed import deployed
from tests.lab.fixtures import breakable_lab3, can_have_lab, lab3

__all__ = ["breakable_lab3", "can_have_lab", "deployed", "lab3"]

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
    """Let ctrl+c do its work even where the run was started in the background, which has it ignored, children too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # As xdist reads the marks in this same hook.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep on one worker what shares a fixture: the tests of a file, and all those of the shared isolated hosts.

    A file may name another group: its worker then has isolated hosts of its own.
    """
    for item in items:
        if item.get_closest_marker("xdist_group"):
            continue
        group = "lab" if "lab3" in getattr(item, "fixturenames", ()) else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish() -> None:
    """Search for garbage no more among what was imported and collected, and elsewhere less often.

    It takes a third of the time of the tests of screens, whose widgets are all in circles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


_PREFIXES = ("DTTUI_", "XDG_", "TEXTUAL", "LC_")
_NAMES = ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "LANG", "LANGUAGE", "SSH_AUTH_SOCK", "SSH_ASKPASS")


@pytest.fixture(autouse=True)
def isolated_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test a home of its own and none of the person's settings."""
    for name in os.environ:
        if name in _NAMES or (name.startswith(_PREFIXES) and not name.startswith("DTTUI_REQUIRE_")):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for kind in ("CONFIG", "STATE", "CACHE", "DATA"):
        directory = home / kind.lower()
        directory.mkdir()
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(directory))
    monkeypatch.setenv("LANG", "C.UTF-8")
    # Short: sockets are made below it, and their paths hold 107 bytes at most.
    demo_root = tempfile.mkdtemp(prefix="dttui-")
    monkeypatch.setenv("DTTUI_DEMO_ROOT", demo_root)
    yield
    shutil.rmtree(demo_root, ignore_errors=True)
