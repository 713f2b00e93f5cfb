"""What ranks note of the process groups that they form: by torch's real calls, of every way to form one or none."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dtagent import payload
from dtagent.attempts import grouping
from dtagent.locations import AttemptFiles, make_private
from dtagent.protocol.meeting import FormedGroup

from tests.gloo import LEAVES, without_abort
from tests.ports import held_port
from tests.torch_forkserver import TorchStem

RUNNER = Path(payload.__file__).parent / "rank.py"
pytestmark = pytest.mark.torch


# As the agent's own stem does it, torch is imported once and each rank is a fork.
FORKED = """
import os, runpy, sys
runner, size = sys.argv[1], int(sys.argv[2])
pids = []
for rank in range(size):
    if (pid := os.fork()) == 0:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        sys.argv = [runner, "train.py"]
        runpy.run_path(runner, run_name="__main__")
        raise SystemExit
    pids.append(pid)
raise SystemExit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))
"""
DEADLINE_S = 90.0


class Job:
    """Ranks of one script on this machine, as a launcher would start them, or a stem fork them."""

    def __init__(self, home: Path, text: str) -> None:
        self.files = AttemptFiles(home)
        for directory in (self.files.logs, self.files.ranks, self.files.failures, self.files.work):
            make_private(directory)
        (self.files.work / "train.py").write_text(text)

    def run(self, size: int, stem: TorchStem | None = None) -> list[FormedGroup]:
        with held_port() as port:
            env = {
                **os.environ,
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "DTTUI_LOGS": str(self.files.logs),
                "OMP_NUM_THREADS": "1",
            }
            codes = self._start(size, env) if stem is None else [self._fork(size, env, stem)]
        said = "".join(path.read_text() for path in sorted(self.files.logs.iterdir()))
        assert {without_abort(code, said) for code in codes} == {0}, said
        assert "dttui" not in said
        return grouping.read(self.files)

    def _fork(self, size: int, env: dict[str, str], stem: TorchStem) -> int:
        argv = ["-c", str(RUNNER), str(size)]
        return stem.run(FORKED, argv, cwd=self.files.work, env=env, timeout_s=DEADLINE_S).returncode

    def _start(self, size: int, env: dict[str, str]) -> list[int]:
        argv = [sys.executable, str(RUNNER), "train.py"]
        own = [{**env, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
        ranks = [subprocess.Popen(argv, cwd=self.files.work, env=item, start_new_session=True) for item in own]
        try:
            return [rank.wait(DEADLINE_S) for rank in ranks]
        finally:
            for rank in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(rank.pid, signal.SIGKILL)
                rank.wait()


def told(groups: list[FormedGroup]) -> list[tuple[list[int], list[int], str, int, int]]:
    return sorted((item.ranks, item.places, item.backend, item.world_size, item.turn) for item in groups)


def members(groups: list[FormedGroup]) -> set[str]:
    return {item.members for item in groups}


@pytest.mark.parametrize("forked", [False, True], ids=["started", "forked"])
def test_one_group_is_told_as_one_by_whatever_name_it_is_formed(
    tmp_path: Path, torch_forkserver: TorchStem, forked: bool
) -> None:
    text = (
        """
import os, time, torch.distributed as dist
from torch.distributed import init_process_group as by_import
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import init_process_group as of_its_own_module
# A child is no rank of the job.
import torch.testing._internal.distributed.fake_pg as fake
if (pid := os.fork()) == 0:
    dist.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
for begin in (
    lambda: dist.init_process_group("gloo"),
    lambda: by_import(backend="gloo", init_method="env://"),
    lambda: of_its_own_module(),
    lambda: init_device_mesh("cpu", (2,)),
):
    begin()
    dist.new_group([0])
    dist.barrier()
    if begin.__code__.co_names[0] != "init_device_mesh":
        dist.destroy_process_group()
        # The store of before is rank 0's: whoever looks for the next one must not find that.
        over = f"over{begin.__code__.co_firstlineno}"
        if os.environ["RANK"] == "0":
            open(over, "w").close()
        while not os.path.exists(over):
            time.sleep(0.01)
"""
        + LEAVES
    )
    groups = Job(tmp_path, text).run(2, torch_forkserver if forked else None)
    assert [(item.ranks, item.places, item.world_size, item.turn) for item in groups] == [
        ([0, 1], [0, 1], 2, turn) for turn in range(4)
    ]
    assert [item.backend for item in groups][:2] == ["gloo", "gloo"]
    assert all("gloo" in item.backend for item in groups)
    assert all(len(item.members) == 16 for item in groups)


HALVES = """
import os, sys, torch.distributed as dist
rank = int(os.environ["RANK"])
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "how",
    [
        "store = dist.FileStore(f'store{rank // 2}', 2)\n"
        "dist.init_process_group('gloo', store=store, rank=rank % 2, world_size=2)",
        "base = dist.FileStore('store', 4)\n"
        "dist.init_process_group('gloo', store=dist.PrefixStore(str(rank // 2), base), rank=rank % 2, world_size=2)",
    ],
    ids=["two stores", "two prefixes of one store"],
)
def test_two_halves_are_two_groups(tmp_path: Path, torch_forkserver: TorchStem, how: str) -> None:
    groups = Job(tmp_path, HALVES + how + LEAVES).run(4, torch_forkserver)
    assert told(groups) == [([0, 1], [0, 1], "gloo", 2, 0), ([2, 3], [0, 1], "gloo", 2, 0)]
    assert len(members(groups)) == 2


@pytest.mark.parametrize(
    "how",
    [
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)",
        # All of them in the store of one launcher.
        "store = dist.FileStore('store', 3)\ndist.init_process_group('gloo', store=store, rank=0, world_size=1)",
        "import socket\nheld = socket.socket()\nheld.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "held.bind(('127.0.0.1', 0))\nos.environ['MASTER_PORT'] = str(held.getsockname()[1])\n"
        "os.environ.update(RANK='0', WORLD_SIZE='1')\ndist.init_process_group('gloo')",
    ],
    ids=["own stores", "a shared store", "overwritten variables"],
)
def test_worlds_of_one_rank_are_as_many_groups(tmp_path: Path, torch_forkserver: TorchStem, how: str) -> None:
    groups = Job(tmp_path, HALVES + how + LEAVES).run(3, torch_forkserver)
    assert told(groups) == [([rank], [0], "gloo", 1, 0) for rank in range(3)]
    assert len(members(groups)) == 3
    assert any("world-size" in item.notes for item in groups) == ("environ.update" in how)


def test_a_store_without_our_calls_and_a_fake_group_leave_the_members_untold(
    tmp_path: Path, torch_forkserver: TorchStem
) -> None:
    text = """
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
dist.destroy_process_group()
class Own(dist.Store):
    def set(self, *_): pass
dist.init_process_group("fake", store=Own(), rank=0, world_size=8)
"""
    groups = Job(tmp_path, text).run(1, torch_forkserver)
    assert {(group.backend, group.world_size, group.members) for group in groups} == {("fake", 8, "")}


def test_a_store_that_hangs_holds_a_script_up_for_two_seconds_at_most(
    tmp_path: Path, torch_forkserver: TorchStem
) -> None:
    text = """
import threading, time, torch.distributed as dist, torch.testing._internal.distributed.fake_pg
class Own(dist.Store):
    def compare_set(self, *_): threading.Event().wait()
began = time.monotonic()
dist.init_process_group("fake", store=Own(), rank=0, world_size=1)
print(time.monotonic() - began, flush=True)
"""
    job = Job(tmp_path, text)
    (group,) = job.run(1, torch_forkserver)
    assert (group.backend, group.members) == ("fake", "")
    assert float((job.files.logs / "0.out").read_text()) < 20


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("pass", []),
        ("import torch.distributed", ["torch"]),
        (
            "import torch.multiprocessing as mp, os\n"
            "def work(index): pass\n"
            "if __name__ == '__main__': mp.spawn(work, nprocs=2)",
            ["torch", "launcher"],
        ),
        ("import accelerate.state", ["accelerate"]),
        (
            "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'torch.distributed.run', '-h'], stdout=-3)",
            ["launcher"],
        ),
        (
            "import os, subprocess\n"
            "try: subprocess.run('/no/such/torchrun train.py', shell=True, stderr=-3)\nfinally: pass",
            ["launcher"],
        ),
        (
            "import multiprocessing as mp\nmp.get_context('fork').Process(target=print).start()",
            ["launcher"],
        ),
        (
            "import multiprocessing as mp, subprocess\n"
            "with mp.get_context('fork').Pool(1) as pool: pool.map(abs, [1])\nsubprocess.run(['true'])",
            [],
        ),
    ],
    ids=["nothing", "torch", "a launcher", "accelerate", "torchrun", "a shell", "a process", "workers"],
)
def test_of_ranks_without_a_group_it_is_told_what_they_did(tmp_path: Path, text: str, notes: list[str]) -> None:
    job = Job(tmp_path, text)
    package = job.files.work / "accelerate"
    if "accelerate" in text:
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "state.py").write_text("class PartialState: pass")
    (group,) = job.run(1)
    assert (group.ranks, group.places, group.world_size, group.notes) == ([0], [], 0, notes)


@pytest.mark.parametrize(("count", "is_used"), [(1, False), (2, True)], ids=["without a GPU", "with"])
def test_a_group_that_accelerate_forms_and_leaves_unused_is_none(
    tmp_path: Path,
    torch_forkserver: TorchStem,
    count: int,
    is_used: bool,
) -> None:
    job = Job(tmp_path, "from accelerate.state import PartialState\nPartialState()\nPartialState()")
    package = job.files.work / "accelerate"
    package.mkdir()
    (package / "__init__.py").touch()
    # As in accelerate 1.15, where it finds LOCAL_RANK, no GPU, and was not told to take the CPU.
    (package / "state.py").write_text(
        "import torch.distributed as dist\n"
        "class PartialState:\n"
        "    def __init__(self):\n"
        "        if not dist.is_initialized(): dist.init_process_group(backend=None)\n"
        f"        self.num_processes = {count}\n"
    )
    groups = job.run(2, torch_forkserver)
    assert [(item.ranks, item.world_size) for item in groups] == [([0, 1], 2 if is_used else 0)]
    assert all("accelerate" in item.notes for item in groups)


@pytest.mark.thorough
@pytest.mark.parametrize("ends", ["raise SystemExit", "os._exit(0)", "dist.destroy_process_group()"])
def test_a_group_that_accelerate_leaves_unused_counts_once_the_script_uses_it(
    tmp_path: Path, torch_forkserver: TorchStem, ends: str
) -> None:
    text = (
        "import os, time, torch, torch.distributed as dist\n"
        "from accelerate.state import PartialState\n"
        "PartialState()\n"
        "dist.all_reduce(torch.ones(1))\n"
        "dist.barrier()\n"
    )
    # What has been destroyed was used for a while.
    wait = "import json\nrecord = os.environ['DTTUI_LOGS'] + f'/../ranks/{os.environ[\"RANK\"]}.group.json'\n"
    wait += "while not json.load(open(record))['groups']: time.sleep(0.05)\ndist.barrier()\n"
    job = Job(tmp_path, text + (wait if "destroy" in ends else "") + ends)
    package = job.files.work / "accelerate"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "state.py").write_text(
        "import torch.distributed as dist\n"
        "class PartialState:\n"
        "    num_processes = 1\n"
        "    def __init__(self): dist.init_process_group(backend=None)\n"
    )
    groups = job.run(2, torch_forkserver)
    assert [(item.ranks, item.world_size) for item in groups] == [([0, 1], 2)]


def test_a_script_that_loads_torch_past_the_hooks_is_told_as_that(tmp_path: Path) -> None:
    text = (
        "import sys\n"
        "sys.meta_path[:] = [item for item in sys.meta_path if isinstance(item, type)]\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
    )
    (group,) = Job(tmp_path, text).run(1)
    assert (group.places, group.notes) == ([], ["unseen"])


def test_ranks_that_call_each_other_without_a_group_are_told_as_one(tmp_path: Path) -> None:
    text = """
import os, torch.distributed.rpc as rpc
rank = int(os.environ["RANK"])
rpc.init_rpc(f"rank{rank}", rank=rank, world_size=2)
rpc.shutdown()
"""
    assert told(Job(tmp_path, text).run(2)) == [([0, 1], [0, 1], "rpc", 2, 0)]


def test_horovod_tells_its_size(tmp_path: Path) -> None:
    job = Job(tmp_path, "from horovod.common.basics import HorovodBasics\nHorovodBasics().init(comm=[0, 1])")
    package = job.files.work / "horovod" / "common"
    package.mkdir(parents=True)
    # As in horovod 0.28: the class that the modules of all frameworks take their calls from.
    (package / "basics.py").write_text(
        "import os\n"
        "class HorovodBasics:\n"
        "    def init(self, comm=None, process_sets=None): assert comm == [0, 1]\n"
        "    def size(self): return int(os.environ['WORLD_SIZE'])\n"
        "    def rank(self): return int(os.environ['RANK'])\n"
    )
    assert told(job.run(2)) == [([0, 1], [0, 1], "horovod", 2, 0)]


def test_nothing_is_imported_that_the_script_does_not_import(tmp_path: Path) -> None:
    text = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    job = Job(tmp_path / "with", text)
    job.run(1)
    with_hooks = json.loads((job.files.logs / "0.out").read_text())
    bare = Job(tmp_path / "bare", text)
    runner = bare.files.work / "rank.py"
    runner.write_bytes(RUNNER.read_bytes())  # Without the file that does it.
    env = {**os.environ, "RANK": "0", "DTTUI_LOGS": str(bare.files.logs)}
    subprocess.run([sys.executable, str(runner), "train.py"], cwd=bare.files.work, env=env, check=True, timeout=60)
    assert set(with_hooks) - set(json.loads((bare.files.logs / "0.out").read_text())) == set()
    assert grouping.read(bare.files) == []


def test_a_script_may_have_a_module_by_the_name_of_ours_and_reload_torchs(tmp_path: Path) -> None:
    text = """
import importlib, inspect, pickle, sys
import process_groups
assert process_groups.OWN
import torch.distributed as dist, torch.distributed.distributed_c10d as c10d
assert inspect.signature(dist.init_process_group).parameters["backend"].default is None
assert pickle.loads(pickle.dumps(dist.init_process_group)) is c10d.init_process_group
assert inspect.getsource(c10d).startswith("#") or inspect.getsource(c10d)
assert importlib.util.find_spec("torch.distributed.distributed_c10d").origin == c10d.__file__
try:
    dist.init_process_group("gloo", init_method="no://such")
except (RuntimeError, ValueError):
    pass
else:
    raise SystemExit("no error")
dist.init_process_group("gloo")
"""
    job = Job(tmp_path, text)
    (job.files.work / "process_groups.py").write_text("OWN = True")
    assert told(job.run(1)) == [([0], [0], "gloo", 1, 0)]


def test_records_that_a_job_has_spoilt_break_no_status_and_stay_small(tmp_path: Path) -> None:
    files = AttemptFiles(tmp_path)
    make_private(files.ranks)
    good: dict[str, Any] = {"backend": "gloo", "world_size": 2, "rank": 0, "members": "ab"}
    spoilt: list[Any] = [
        "{", "[]", "{}", {"notes": [], "groups": [good | {"world_size": -1}]},
        {"notes": [], "groups": [good | {"rank": "0"}]},
        {"notes": 5, "groups": []}, {"notes": [1], "groups": []}, {"notes": [], "groups": [None]},
        {"notes": [], "groups": [good | {"world_size": 1e308}]}, {"notes": [], "groups": {}},
    ]  # fmt: skip
    for rank, body in enumerate(spoilt):
        (files.ranks / f"{rank}.group.json").write_text(body if isinstance(body, str) else json.dumps(body))
    (files.ranks / "77.group.json").write_text(json.dumps({"notes": ["x" * 500] * 50, "groups": [good] * 50}))
    (files.ranks / "78.group.json").symlink_to("/dev/zero")
    os.mkfifo(files.ranks / "79.group.json")
    for rank in range(1000, 2000):  # Each says something else.
        body = {"notes": [], "groups": [good | {"members": f"{rank}" * 100}]}
        (files.ranks / f"{rank}.group.json").write_text(json.dumps(body))
    began = time.monotonic()
    groups = grouping.read(files)
    assert time.monotonic() - began < 20
    assert len(groups) <= grouping.MOST_KINDS
    assert len(json.dumps([vars(item) for item in groups])) < 256 * 1024
    assert [77] in [item.ranks for item in groups]
    assert all(len(note) <= grouping.MOST_CHARACTERS for item in groups for note in item.notes)
