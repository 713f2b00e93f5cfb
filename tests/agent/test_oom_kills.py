"""Whether the kernel has killed for want of memory, and whether at a limit: by files as it has them, and without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dtagent.supervision import oom_kills
from dtagent.supervision.oom_kills import OomKills
from dtagent.system import cgroup
from dtagent.system.cgroup import memory_directories

HERE = os.getpid()


class Kernel:
    """The files of a kernel whose root is a directory: a process in `/job/step`, of which `/job` has a limit."""

    def __init__(self, root: Path, version: int) -> None:
        self.version = version
        self.top = root / "sys"
        self.place = self.top / "job/step"
        self.vmstat, self.own, self.mountinfo = root / "vmstat", root / "cgroup", root / "mountinfo"
        for group in ("", "job", "job/step"):
            (self.top / group).mkdir(parents=True, exist_ok=True)
        kind = "cgroup2" if version == 2 else "cgroup"
        self.own.write_text(
            "0::/job/step\n" if version == 2 else "5:cpu:/elsewhere\n4:memory,hugetlb:/job/step\n0::/\n"
        )
        self.mountinfo.write_text(f"30 24 0:26 / {self.top} rw,nosuid shared:9 - {kind} cgroup rw\n")
        self.set(host=3)
        for group in ("job", "job/step"):
            self.set(group)

    def set(self, group: str | None = None, *, host: int | None = None, kills: int = 0, limits: int = 0) -> None:
        if host is not None:
            self.vmstat.write_text(f"pgfault 7\noom_kill {host}\npgmajfault 3\n")
        if group is not None and self.version == 2:
            text = f"low 0\nhigh 0\nmax 9\noom {limits}\noom_kill {kills}\noom_group_kill 0\n"
            (self.top / group / "memory.events").write_text(text)
        elif group is not None:
            text = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
            (self.top / group / "memory.oom_control").write_text(text)
            (self.top / group / "memory.failcnt").write_text(f"{limits}\n")

    def counts(self) -> OomKills:
        """Return the counts, with this test's own process as one that was seen there at two looks."""
        own = cgroup.memory_directories(self.own, self.mountinfo, and_above=False)
        counts = OomKills(cgroup.memory_directories(self.own, self.mountinfo), self.vmstat, own)
        counts.look([HERE])
        counts.look([HERE])
        return counts

    def directories_of(self, listed: Path, mountinfo: Path | None = None, *, and_above: bool = True) -> list[Path]:
        """Return them of what the files say of the kernel's process, and of this test's where it is said to be."""
        if listed == Path(f"/proc/{HERE}/cgroup"):
            return [self.place]
        return memory_directories(listed, mountinfo or self.mountinfo, and_above=and_above)


@pytest.fixture(params=[2, 1], ids=["v2", "v1"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(tmp_path, request.param)
    monkeypatch.setattr(oom_kills, "LOOK_S", 0.0)
    monkeypatch.setattr(cgroup, "memory_directories", kernel.directories_of)
    return kernel


def test_a_kill_at_the_limit_of_a_cgroup_above_is_told_as_that(kernel: Kernel) -> None:
    kernel.set("job", kills=2, limits=40)  # From before: of somebody else.
    counts = kernel.counts()
    assert counts.recent(HERE) == {"oom_kills": 0, "at_memory_limit": False, "is_oom_killed_here": False}
    kernel.set("job/step", kills=1, limits=1 if kernel.version == 2 else 0)
    kernel.set("job", kills=3 if kernel.version == 2 else 2, limits=41)
    kernel.set(host=4)
    assert counts.recent(HERE) == {"oom_kills": 1, "at_memory_limit": True, "is_oom_killed_here": True}


def test_a_kill_for_which_no_limit_was_reached_was_for_the_host(kernel: Kernel) -> None:
    counts = kernel.counts()
    kernel.set("job/step", kills=1)
    kernel.set(host=4)
    assert counts.recent(HERE) == {"oom_kills": 1, "at_memory_limit": False, "is_oom_killed_here": True}


def test_a_limit_that_was_reached_and_killed_nobody_says_nothing(kernel: Kernel) -> None:
    counts = kernel.counts()
    kernel.set("job", limits=9)
    assert counts.recent(HERE) == {"oom_kills": 0, "at_memory_limit": False, "is_oom_killed_here": False}


def test_a_kill_of_somebody_else_on_the_host_is_none_here(kernel: Kernel) -> None:
    counts = kernel.counts()
    kernel.set(host=4)
    assert counts.recent(HERE) == {"oom_kills": 1, "at_memory_limit": False, "is_oom_killed_here": False}
    kernel.set("job", kills=1)  # Of another process below the same cgroup, of version 2.
    assert counts.recent(HERE)["is_oom_killed_here"] is False


def test_of_who_went_elsewhere_or_may_have_gone_it_is_not_known(kernel: Kernel) -> None:
    """As `systemd-run --scope` puts them; between two looks nobody could see that."""
    counts = kernel.counts()
    assert counts.recent(HERE)["is_oom_killed_here"] is False
    assert counts.recent(HERE + 1)["is_oom_killed_here"] is None
    assert counts.recent()["is_oom_killed_here"] is None
    kernel.place = kernel.top
    (kernel.top / "memory.events").write_text("oom_kill 0\n")
    moved = OomKills([kernel.top / "job/step"], kernel.vmstat, [kernel.top / "job/step"])
    moved.look([HERE, 2**22 + 1])
    moved.look([HERE])
    assert moved.recent(HERE)["is_oom_killed_here"] is None
    assert moved.recent(HERE)["oom_kills"] == 0


def test_what_happened_long_before_is_not_counted(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = kernel.counts()
    kernel.set("job/step", kills=1, limits=1)
    monkeypatch.setattr(oom_kills, "LOOK_S", 0.0)
    monkeypatch.setattr(oom_kills, "WINDOW_S", 0.0)
    counts.look()
    counts.look()
    assert counts.recent(HERE)["at_memory_limit"] is False


@pytest.mark.parametrize("gone", ["cgroup", "mountinfo", "sys", "content"])
def test_what_cannot_be_read_is_not_known(kernel: Kernel, tmp_path: Path, gone: str) -> None:
    if gone == "sys":
        for path in [*kernel.top.rglob("memory.*")]:
            path.unlink()
    elif gone == "content":
        for path in [*kernel.top.rglob("memory.*")]:
            path.write_text("nonsense\noom x\noom_kill y\n")
    else:
        os.unlink(tmp_path / gone)
    kernel.vmstat.unlink()
    told = kernel.counts().recent(HERE)
    assert told == {"oom_kills": None, "at_memory_limit": None, "is_oom_killed_here": None}


def test_a_cgroup_that_is_removed_meanwhile_is_not_known_any_more(kernel: Kernel) -> None:
    counts = kernel.counts()
    for path in [*kernel.top.rglob("memory.*")]:
        path.unlink()
    assert counts.recent(HERE) == {"oom_kills": 0, "at_memory_limit": None, "is_oom_killed_here": None}


def test_on_this_machine_the_directories_are_those_that_count() -> None:
    for path in cgroup.memory_directories():
        assert (path / "memory.events").exists() or (path / "memory.oom_control").exists()
