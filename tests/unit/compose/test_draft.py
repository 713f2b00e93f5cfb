"""What is said of a job while it is being composed."""

from __future__ import annotations

from pathlib import Path

from dttui.app import App, Caller
from dttui.compose.draft import preview_draft
from dttui.fleet.live import EnvironmentStatus
from dttui.fleet.states import EnvironmentState
from dttui.planning.compose_state import ComposeState
from dttui.planning.models import Severity
from tests.tui.catalogue import compile_catalogues
from tests.tui.fake_fleet import status
from tests.unit.seed_cluster import SEED

STATUSES = {item.name: EnvironmentStatus(item) for item in SEED.environments}
KEYS = tuple(STATUSES)


def test_an_empty_draft_has_nothing_to_complain_of() -> None:
    assert preview_draft(ComposeState(), SEED, STATUSES, Path()).findings == ()


def test_zones_are_warned_of_before_anything_else_is_filled_in() -> None:
    preview = preview_draft(ComposeState(selected=KEYS, master=KEYS[0]), SEED, STATUSES, Path())
    assert [finding.code for finding in preview.findings] == ["cross-zone"]
    assert preview.plan is not None
    assert preview.plan.world_size == 14


def test_a_ticked_environment_that_is_down_is_a_warning_and_no_error() -> None:
    down = EnvironmentStatus(SEED.environments[0], EnvironmentState.UNREACHABLE, "no answer", "look at it")
    preview = preview_draft(ComposeState(selected=KEYS[:1], master=KEYS[0]), SEED, {**STATUSES, KEYS[0]: down}, Path())
    finding = next(item for item in preview.findings if item.code == "environment-unreachable")
    assert (finding.severity, finding.subject, finding.hint) == (Severity.WARNING, KEYS[0], "look at it")
    assert "no answer" in finding.message


def test_versions_that_differ_are_told_from_what_hosts_have_said_already() -> None:
    told = {item.name: status(item, EnvironmentState.IDLE) for item in SEED.environments}
    behind = told[KEYS[2]].facts
    assert behind is not None
    behind.pythons[0].packages["torch"] = "2.12.1"
    preview = preview_draft(ComposeState(selected=KEYS, master=KEYS[0]), SEED, told, Path())
    (finding,) = (item for item in preview.findings if item.code == "drift")
    assert finding.severity is Severity.WARNING
    assert f"{KEYS[2]}: 2.12.1" in finding.message


def test_a_field_that_no_job_can_hold_is_said_and_leaves_no_plan() -> None:
    preview = preview_draft(ComposeState(program="a.py", arguments='"open', selected=KEYS), SEED, STATUSES, Path())
    assert preview.plan is None
    assert [finding.severity for finding in preview.findings] == [Severity.ERROR]


def test_a_draft_is_told_of_in_the_language_of_its_caller() -> None:
    compile_catalogues()
    state = ComposeState(selected=KEYS, master=KEYS[0])
    told = [App(Caller(language)).drafts.preview(state, SEED, STATUSES, Path()).findings for language in ("en", "zh")]
    (english,), (chinese,) = told
    assert (english.code, chinese.code) == ("cross-zone", "cross-zone")
    assert english.message.startswith("training across zones")
    assert chinese.message.startswith("跨")
