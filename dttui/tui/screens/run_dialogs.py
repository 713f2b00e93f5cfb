"""Questions about how a draft runs: what its framework is told, its image, each section. They change a state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from textual.app import App

from dttui.app import Drafts
from dttui.compose import form_of, with_section
from dttui.errors import UsageError
from dttui.frameworks import Unavailable
from dttui.i18n import _
from dttui.jobs import JobDirectory, read_events
from dttui.planning import ComposeState, options_form
from dttui.planning.section_form import section_form
from dttui.sanitize import clean
from dttui.spec import Container, Job
from dttui.tui.screens.job_files import tell
from dttui.tui.screens.section import SectionDialog
from dttui.tui.section_titles import section_title

_NAME = "draft"
"""Of a job that is only looked at."""


async def ask_for_options(app: App[Any], drafts: Drafts, state: ComposeState, at: str = "") -> ComposeState | None:
    """Ask what the framework is told; return the draft with it, `None` where it stays as it is. In a worker."""
    if state.framework is None:
        return None
    (framework,) = drafts.frameworks(state.framework)
    if isinstance(framework, Unavailable):
        tell(app, UsageError(framework.reason, framework.hint))
        return None
    form = options_form(Job(name=_NAME, framework_options=dict(state.framework_options)), framework)
    if not form.fields:
        text = _("{framework} has no options.").format(framework=framework.label)
        app.notify(text, markup=False)
        return None
    title = _("Options of {framework}").format(framework=framework.label)
    values = await app.push_screen_wait(SectionDialog(title, form, at))
    return None if values is None else state.with_options(values)


async def ask_for_section(app: App[Any], state: ComposeState, section: str, at: str = "") -> ComposeState | None:
    """Ask for a section of the job; return the draft with it, `None` where it stays as it is. In a worker."""
    values = await app.push_screen_wait(SectionDialog(section_title(section), form_of(state, section), at))
    return None if values is None else with_section(state, section, values)


async def ask_for_container(app: App[Any], state: ComposeState, at: str = "") -> ComposeState | None:
    """Ask for the image to run in; return the draft with it, `None` where it stays as it is. In a worker."""
    dialog = SectionDialog(_("Container"), section_form(Container, state.container), at)
    values = await app.push_screen_wait(dialog)
    if values is None:
        return None
    return replace(state, container=Container.model_validate(values) if values else None)


def tell_launched(app: App[Any], directory: JobDirectory, asked_at: float, message: tuple[str, str]) -> None:
    """Say that a job was launched, by title and text; or that it ran before that was asked for, at a Unix time."""
    first = next(read_events(directory.events), None)
    if first is not None and first.time < asked_at:
        app.notify(_("This job runs already: here it is."), markup=False)
    else:
        title, text = message
        app.notify(clean(text), title=clean(title), markup=False)
