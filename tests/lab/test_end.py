"""Proves that nothing of a lab outlives it, however it ends, and that a machine that cannot have one is told why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import leftovers
from tests.lab.commands import LabError, ip_if_there
from tests.lab.fixtures import missing_requirement, require_lab
from tests.lab.hosts import Lab
from tests.lab.probes import connect_from, ssh
from tests.waiting import wait_until

_CHECKOUT = Path(__file__).parents[2]
_OWNER = """\
import os, signal, sys
from tests.lab.hosts import Lab
with Lab(["gpu1", "gpu2"]) as lab:
    lab["gpu1"].run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & exit 0"])
    heir = os.fork() if sys.argv[1] == "heir" else 0
    if heir or sys.argv[1] == "alone":
        print(lab.interface, lab.directory, lab.rack_pid, lab["gpu1"].pid, heir, flush=True)
    signal.pause()
"""


def _start_owner(kind: str) -> tuple[subprocess.Popen[str], str, Path, int, int, int]:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, kind], cwd=_CHECKOUT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert owner.stdout is not None
    interface, directory, rack, host, heir = owner.stdout.readline().split()
    return owner, interface, Path(directory), int(rack), int(host), int(heir)


def _reaches(interface: str, rack: int) -> bool:
    """Whether the interface is there and this lab's: another may take a name as soon as it is free."""
    try:
        return f"rack={rack}." in Path("/sys/class/net", interface, "ifalias").read_text()
    except OSError:
        return False


def _gone(interface: str, directory: Path, rack: int) -> bool:
    """Whether nothing is left of a lab: its link, its files, its processes, its mounts."""
    return (
        not _reaches(interface, rack)
        and not directory.exists()
        and leftovers.identity(rack) is None
        and str(directory) not in Path("/proc/self/mounts").read_text()
    )


@pytest.fixture
def small_lab(can_have_lab: None) -> Iterator[Lab]:
    with Lab(["gpu1"]) as lab:
        yield lab


@pytest.mark.lab
class TestEnd:
    def test_two_labs_do_not_collide(self, lab3: Lab, small_lab: Lab) -> None:
        assert small_lab["gpu1"].address != lab3["gpu1"].address
        for lab in (lab3, small_lab):
            assert ssh(lab, lab["gpu1"], "hostname").stdout == "gpu1\n"
        assert connect_from(small_lab["gpu1"], lab3["gpu1"].address, 22) == "OSError 101"

    def test_nothing_is_left_after_the_block(self, can_have_lab: None) -> None:
        with Lab(["gpu1"]) as lab:
            what = (lab.interface, lab.directory, lab.rack_pid)
            assert not _gone(*what)
        assert _gone(*what)

    def test_nothing_is_left_after_an_error_in_the_block(self, can_have_lab: None) -> None:
        lab = Lab(["gpu1"])
        with pytest.raises(ZeroDivisionError), lab:
            raise ZeroDivisionError
        assert _gone(lab.interface, lab.directory, lab.rack_pid)

    def test_a_lab_that_cannot_start_says_why_and_leaves_nothing(self, can_have_lab: None) -> None:
        lab = Lab(["gpu1"], disk_size="plenty")
        with pytest.raises(LabError, match=r"gpu1 did not boot: .*mount tmpfs"), lab:
            pass
        assert not lab.directory.exists()

    def test_nothing_is_left_when_the_owner_is_killed(self, can_have_lab: None) -> None:
        owner, interface, directory, rack, host, _ = _start_owner("alone")
        with owner:
            assert not _gone(interface, directory, rack)
            owner.kill()
        wait_until(lambda: _gone(interface, directory, rack), "the killed owner's lab is gone")
        assert leftovers.identity(host) is None

    def test_the_next_lab_sweeps_away_what_outlived_its_owner(self, can_have_lab: None) -> None:
        owner, interface, directory, rack, host, heir = _start_owner("heir")
        with owner:
            # The heir holds a copy of the control socket, so the rack cannot know that its owner is gone.
            owner.kill()
            owner.wait()
            assert leftovers.identity(rack) is not None
            leftovers.sweep()
            os.kill(heir, signal.SIGKILL)
        wait_until(lambda: _gone(interface, directory, rack), "the orphaned lab is gone")
        assert leftovers.identity(host) is None

    def test_a_sweep_spares_the_labs_of_the_living(self, lab3: Lab) -> None:
        leftovers.sweep()
        assert ssh(lab3, lab3["gpu1"], "true").returncode == 0


class TestInterfacesThatAreGone:
    # `ip` takes `if99999` for the number of an interface: as if its name had been found and it had gone since.
    @pytest.mark.parametrize("name", ["dtlab-none", "if99999"])
    def test_one_that_went_by_itself_may_be_removed(self, can_have_lab: None, name: str) -> None:
        ip_if_there(f"link delete {name}")

    def test_any_other_failure_is_told(self, can_have_lab: None) -> None:
        with pytest.raises(LabError, match="rubbish"):
            ip_if_there("link rubbish")


class TestRequirements:
    def test_without_root_the_reason_says_so(self) -> None:
        assert missing_requirement(user_id=1000) == "needs root"

    @pytest.mark.parametrize(
        ("tool", "reason"),
        [
            ("sshd", "needs sshd: apt install openssh-server"),
            ("tc", "needs tc: apt install iproute2"),
            ("iptables", "needs iptables: apt install iptables"),
        ],
    )
    def test_a_missing_tool_is_named_with_its_package(self, tool: str, reason: str) -> None:
        assert missing_requirement(user_id=0, find=lambda name: None if name == tool else f"/usr/bin/{name}") == reason

    def test_a_missing_lab_skips_unless_it_is_required(self) -> None:
        require_lab(None, {"DTTUI_REQUIRE_LAB": "1"})
        with pytest.raises(pytest.skip.Exception, match="the test cluster needs root"):
            require_lab("needs root", {})
        with pytest.raises(pytest.fail.Exception, match="DTTUI_REQUIRE_LAB=1, but the test cluster needs root"):
            require_lab("needs root", {"DTTUI_REQUIRE_LAB": "1"})

    @pytest.mark.parametrize("names", [[], ["gpu1", "gpu1"], ["GPU 1"], ["-gpu1"]])
    def test_impossible_names_are_refused(self, names: list[str]) -> None:
        with pytest.raises(LabError):
            Lab(names)

    def test_an_interpreter_that_is_none_is_refused(self, can_have_lab: None, tmp_path: Path) -> None:
        lab = Lab(["gpu1"], user_python=tmp_path)
        with pytest.raises(LabError, match="has no bin/python"), lab:
            pass
