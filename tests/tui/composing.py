"""Steps on the compose screen that several tests take, and a launcher that launches nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from textual.pilot import Pilot
from textual.widgets import Button, OptionList

from dttui.frameworks import frameworks
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.planning.models import Plan
from dttui.planning.submission import Submission
from dttui.spec.models import Model
from dttui.tui.app import DttuiApp
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.frameworks import FrameworkDialog
from dttui.tui.widgets.environment_list import EnvironmentList
from tests.tui.job_files import running
from tests.tui.looking import settle, until

SIZE = (120, 40)
SEVEN = Model(parameters=7e9, precision="bf16")
PAIR = ("a100-17", "a100-18")
"""Sixteen A100 in one zone."""


@dataclass
class FakeLauncher:
    """Keeps what it was to launch, and answers with a job that a test wrote."""

    inventory: Inventory
    launched: list[tuple[Submission, Plan]] = field(default_factory=list)

    def __call__(self, submission: Submission, plan: Plan) -> JobDirectory:
        self.launched.append((submission, plan))
        return running(submission.job, self.inventory).directory


def screen_of(app: DttuiApp) -> ComposeScreen:
    screen = app.screen
    assert isinstance(screen, ComposeScreen)
    return screen


def lines_of(app: DttuiApp) -> str:
    listed = app.screen.query_one(EnvironmentList)
    return "\n".join(listed.render_line(y).text for y in range(listed.size.height))


async def choose_framework(app: DttuiApp, pilot: Pilot[None], name: str) -> None:
    """Take a framework in the dialog that offers them."""
    app.screen.query_one("#framework", Button).press()
    await until(pilot, lambda: isinstance(app.screen, FrameworkDialog), "the frameworks are offered")
    await settle(app, pilot)
    app.screen.query_one(OptionList).highlighted = [item.name for item in frameworks()].index(name)
    await settle(app, pilot)
    app.screen.query_one("#ok", Button).press()
    await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "one is taken")
    await settle(app, pilot)


async def tick(pilot: Pilot[None], *positions: int) -> None:
    """Tick the environments at these places of the list, in this order."""
    for position in positions:
        await pilot.press("home", *["down"] * position, "space")
