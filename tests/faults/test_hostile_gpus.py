"""GPUs, processes, users and kernels of any name and length from an agent on this machine: shown as text, or not."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dttui import cli
from dttui import inventory as inventories
from dttui.cli import printing
from dttui.fleet.states import EnvironmentState
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Inventory, Resources
from dttui.sanitize import clean
from dttui.transport import routes
from dttui.transport.local import LocalTransport
from dttui.transport.routes import Transports
from tests.agent.nvml_stub import CONTROL, change, nvml_library
from tests.integration.headless import shell_job
from tests.processes import ended_agents as ended_agents
from tests.tui.fake_fleet import make_app
from tests.tui.looking import follow, screen_text, until

__all__ = ["nvml_library"]

LIAR = Path(__file__).with_name("lying_agent.py")
DEADLINE_S = 60.0
MARKUP = "[/foo]"
"""What is left of the poison is text, and shown as it is; this is where it begins."""
NODES = ("pytorch-dev-env", "llm-training-env")
Lie = Callable[[str], Inventory]


@pytest.fixture
def lie(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lie:
    """Have the agents of the embedded cluster, which see two GPUs that somebody computes on, tell a lie."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
    monkeypatch.setenv(CONTROL, str(tmp_path / "gpus"))
    change(os.environ, {"gpus": 2, "name": "NVIDIA A100", "processes": f"{os.getpid()}:1000"})

    def begin(name: str) -> Inventory:
        bridge = [sys.executable, "-I", str(LIAR), name, "-"]
        monkeypatch.setattr(routes, "LocalTransport", lambda: LocalTransport(bridge))
        demo = demo_inventory(Path(os.environ["DTTUI_DEMO_ROOT"]), Path("examples"), sys.executable)
        real = tuple(
            item.model_copy(update={"resources": Resources()}) for item in demo.environments if item.name in NODES
        )
        inventory = demo.model_copy(update={"environments": real})
        monkeypatch.setattr(inventories, "demo_inventory", lambda *_: inventory)
        return inventory

    return begin


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Return what a command printed, all of it harmless as it is and short."""
    code = cli.main(["--demo", *map(str, arguments)])
    output, errors = capsys.readouterr()
    assert code in (0, 3, 4), errors
    assert clean(output + errors) == output + errors
    assert "\t" not in output + errors
    assert "internal error" not in errors
    return output


@pytest.mark.parametrize("name", ["words", "long words"])
def test_no_name_of_a_gpu_a_process_a_user_or_a_kernel_drives_the_terminal_or_floods_it(
    lie: Lie, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of `envs` and `preflight`, for a person and for a program, each within 60 s."""
    lie(name)
    job = shell_job(tmp_path, dict.fromkeys(NODES, 1), "true")
    for arguments in (["envs"], ["preflight", job]):
        shown = said(capsys, *arguments)
        assert MARKUP in shown
        assert max(map(len, shown.splitlines())) <= printing.MOST_LINE_CHARS
        assert MARKUP in json.dumps(json.loads(said(capsys, *arguments, "--output", "json")))


def test_an_agent_that_sends_10_mb_of_a_kernel_s_name_is_cut_off_by_name(
    lie: Lie, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within 60 s each host is told as one whose agent sends nonsense, in a line."""
    lie("a kernel of 10 MB")
    shown = said(capsys, "envs")
    assert [line for line in shown.splitlines() if "the agent sent nonsense" in line]
    assert len(shown) < 2000


@pytest.mark.parametrize("name", ["words", "long words"])
async def test_the_screen_shows_gpus_of_any_name_as_text(lie: Lie, name: str) -> None:
    """Within 60 s both hosts are known; nothing that their agents named drives the terminal."""
    app = make_app(lie(name), transport=Transports())
    async with app.run_test(size=(120, 40)) as pilot:
        known = (EnvironmentState.IDLE, EnvironmentState.BUSY)

        def are_known() -> bool:
            states = [item.state for item in app.fleet.statuses.values()]
            return len(states) == len(NODES) and all(state in known for state in states)

        await until(pilot, are_known, "both hosts to be known", DEADLINE_S)
        await follow(app, pilot)
        assert clean(screen_text(app)) == screen_text(app)
        assert MARKUP in screen_text(app)
