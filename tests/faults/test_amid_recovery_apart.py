"""What goes wrong while a job is started again whose hosts have each a directory of checkpoints of their own."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dttui.launch.starting import ensure_controller
from tests.faults.recovering import lab
from tests.faults.shell_training import EACH_SAVES, Training
from tests.faults.test_amid_recovery import (
    BOTH,
    Skew,
    check_clocks,
    check_restarted_login_node,
    check_supervisors_and_journals,
    check_that_none_outlives,
    full_for_a_while,
    recorded,
    skewed,
    tear,
)
from tests.faults.test_login_node import kill_controller
from tests.lab.hosts import Lab
from tests.lab.shared import SHARED, share, unshare_from
from tests.processes import ended_agents as ended_agents

__all__ = ["lab", "skewed"]

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300), pytest.mark.xdist_group("lab amid recovery")]


@pytest.fixture
def own(lab: Lab) -> Iterator[None]:
    """A directory of each host's own, by the same path and on its own disk, which outlives that the host is off."""
    for host in lab.values():
        host.run(["mkdir", "-p", SHARED])
    yield
    for host in lab.values():
        with contextlib.suppress(AssertionError):
            host.run(["sh", "-c", f"rm -rf {SHARED}/*"])


@pytest.fixture
def apart(lab: Lab) -> Iterator[Path]:
    """A directory of each host's own, by the same path; return where the first one's is seen here."""
    first, *_others = [share([host]) for host in lab.values()]
    yield first
    for host in lab.values():
        with contextlib.suppress(AssertionError):
            unshare_from(host)


def halve(directory: Path) -> None:
    """Have a checkpoint be one of which the half is written."""
    (directory / "COMPLETE").unlink()


def tear_state(directory: Path) -> None:
    tear(directory / "state.json")


def leave(_directory: Path) -> None:
    """Change nothing of it."""


@pytest.mark.parametrize(
    ("damage", "ends_controller"),
    [
        pytest.param(leave, False, id="none", marks=pytest.mark.thorough),
        pytest.param(tear_state, False, id="torn"),
        pytest.param(halve, False, id="half written", marks=pytest.mark.thorough),
        pytest.param(leave, True, id="controller killed"),
    ],
)
def test_where_no_directory_is_shared_all_go_on_from_the_newest_that_each_host_has_whole(
    damage: Callable[[Path], None], ends_controller: bool, lab: Lab, apart: Path, tmp_path: Path
) -> None:
    """Over within 200 s: a rank is killed, its controller too or not, and its host's newest checkpoint is damaged."""
    training = Training(lab, tmp_path, BOTH, EACH_SAVES, shared=False, max_restarts=5)
    training.wait_for_kept(0, 3)
    training.signal(lab["gpu1"], signal.SIGSTOP)
    newest = training.kept()[0].path
    damage(newest)
    if ends_controller:
        kill_controller(training.directory)
    training.signal(lab["gpu1"], signal.SIGKILL, recorded(training, lab["gpu1"], 0, 0)[1:])
    if ends_controller:
        assert ensure_controller(training.directory)
    training.wait_for_kept(1)
    training.let_go()
    training.check([0, training.newest_of_all(0, *([] if damage is leave else [newest]))])


@pytest.mark.thorough
def test_where_no_directory_is_shared_a_full_disk_costs_all_hosts_what_its_own_could_not_write(
    lab: Lab, apart: Path, tmp_path: Path
) -> None:
    """Over within 200 s: the disk of one host is full in the middle of a write."""
    training = full_for_a_while(lab, apart, tmp_path, shared=False)
    training.check([0, training.newest_of_all(0)])


@pytest.mark.thorough
def test_on_own_disks_too_the_next_attempt_begins_where_it_should_whatever_became_of_a_supervisor_or_its_journal(
    lab: Lab, own: None, tmp_path: Path
) -> None:
    """Over within 200 s."""
    check_supervisors_and_journals(lab, tmp_path, shared=False)


@pytest.mark.thorough
def test_on_own_disks_too_no_rank_outlives_its_attempt_and_whoever_has_its_pid_lives_on(
    lab: Lab, own: None, tmp_path: Path
) -> None:
    """Over within 200 s."""
    check_that_none_outlives(lab, tmp_path, shared=False)


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc: apt install gcc libc6-dev")
def test_on_own_disks_too_an_hour_between_the_clocks_of_hosts_changes_nothing_of_a_recovery(
    lab: Lab, own: None, skewed: Skew, tmp_path: Path
) -> None:
    """Over within 200 s."""
    check_clocks(lab, skewed, tmp_path, shared=False)


@pytest.mark.thorough
def test_on_own_disks_too_a_login_node_that_is_restarted_amid_a_recovery_goes_on_with_that(
    lab: Lab, own: None, tmp_path: Path
) -> None:
    """Over within 200 s."""
    check_restarted_login_node(lab, tmp_path, shared=False)
