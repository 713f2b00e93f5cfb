"""What the kernel's files say of hosts that this one is not: made-up /proc and /sys, and the real ones."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from dtagent.facts import collection
from dtagent.protocol.facts import ContainerFacts, FileSystem, HostFacts, Interface, NumaNode
from dtagent.protocol.rdma import RdmaPort
from dtagent.system import system_facts
from dtagent.telemetry import gpu_topology
from dtagent.telemetry.nvml import Nvml

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
28 27 254:0 /var/lib/docker /var/lib/docker rw - ext4 /dev/vda rw
40 27 259:1 / /data\\040one rw,nosuid - xfs /dev/nvme0n1p1 rw
41 27 0:50 / /home rw,relatime - nfs4 server:/home rw
42 27 0:51 / /scratch ro,relatime - lustre mgs@o2ib:/scratch ro
43 27 0:25 / /dev/shm rw - tmpfs tmpfs rw
"""


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_everything_asked_for_is_told_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtagent.telemetry.nvml.LIBRARY", "libnvidia-ml-that-is-absent.so.1")
    found = collection.collect([], Nvml())
    assert found.cpu_sockets
    assert found.file_systems
    assert any(system.mount == "/" for system in found.file_systems)
    assert found.limits is not None
    assert found.shm_total_mib == psutil.disk_usage("/dev/shm").total // 2**20
    assert found.clock_synchronized in (True, False)
    assert found.time is not None
    assert {item.name for item in found.interfaces or []} <= set(psutil.net_if_stats())


def test_disks_are_told_once_each_and_those_behind_a_network_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"self/mountinfo": MOUNTS})
    asked = []

    def usage(mount: str) -> SimpleNamespace:
        asked.append(mount)
        return SimpleNamespace(total=100 * 2**20, free=40 * 2**20)

    monkeypatch.setattr(psutil, "disk_usage", usage)
    assert system_facts.file_systems(tmp_path) == [
        FileSystem("/", "ext4", False, 100, 40),
        FileSystem("/data one", "xfs", False, 100, 40),
        FileSystem("/home", "nfs4", True),
        FileSystem("/scratch", "lustre", True, is_read_only=True),
    ]
    assert asked == ["/", "/data one"]


def test_numa_nodes_and_sockets_are_counted(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "devices/system/node/node1/cpulist": "32-63\n",
            "devices/system/node/node1/meminfo": "Node 1 MemTotal:       1056768 kB\n",
            "devices/system/node/node0/cpulist": "0-31\n",
            "devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
            "devices/system/cpu/cpu1/topology/physical_package_id": "1\n",
            "devices/system/cpu/cpu2/topology/physical_package_id": "1\n",
        },
    )
    assert system_facts.numa_nodes(tmp_path) == [NumaNode(0, "0-31"), NumaNode(1, "32-63", 1032)]
    assert system_facts.cpu_sockets(tmp_path) == 2
    assert system_facts.cpu_sockets(tmp_path / "nothing") is None


def test_rdma_ports_name_their_interface_and_speed(tmp_path: Path) -> None:
    ib = "class/infiniband/mlx5_0"
    write(
        tmp_path,
        {
            f"{ib}/ports/1/state": "4: ACTIVE\n",
            f"{ib}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            f"{ib}/ports/1/link_layer": "InfiniBand\n",
            f"{ib}/ports/1/gids/0": "fe80:0000:0000:0000:b83f:d203:00aa:bb01\n",
            f"{ib}/device/net/ibs1/dev_port": "0\n",
            f"{ib}/device/numa_node": "1\n",
            "class/infiniband/mlx5_1/ports/2/state": "1: DOWN\n",
            "class/infiniband/mlx5_1/ports/2/gids/0": "0000:0000:0000:0000:0000:0000:0000:0000\n",
        },
    )
    assert system_facts.rdma_ports(tmp_path) == [
        RdmaPort(
            "mlx5_0", 1, "ACTIVE", "InfiniBand", 400.0, "ibs1", "fe80:0000:0000:0000:b83f:d203:00aa:bb01", numa_node=1
        ),
        RdmaPort("mlx5_1", 2, "DOWN"),
    ]
    assert system_facts.rdma_ports(tmp_path / "nothing") == []


def test_interfaces_with_a_device_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"class/net/eth1/device/numa_node": "0\n"})
    state = {"isup": True, "mtu": 9000}
    states = {
        "lo": SimpleNamespace(speed=0, **state),
        "docker0": SimpleNamespace(speed=65535 * 10**6, **state),
        "eth1": SimpleNamespace(speed=100_000, **state),
    }
    monkeypatch.setattr(psutil, "net_if_stats", lambda: states)
    monkeypatch.setattr(psutil, "net_if_addrs", dict)
    assert system_facts.interfaces(tmp_path) == [
        Interface("eth1", True, [], 100_000, 9000, numa_node=0),
        Interface("docker0", True, [], None, 9000, is_virtual=True),
    ]


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        ({"proc/self/cgroup": "0::/\n"}, [], None),
        ({".dockerenv": ""}, [], ContainerFacts("docker")),
        ({".dockerenv": ""}, ["KUBERNETES_SERVICE_HOST"], ContainerFacts("kubernetes")),
        ({"run/systemd/container": "lxc\n"}, [], ContainerFacts("lxc")),
        (
            {
                "proc/self/cgroup": "0::/user.slice/job.scope\n",
                "sys/fs/cgroup/user.slice/cpu.max": "1600000 100000\n",
                "sys/fs/cgroup/user.slice/job.scope/cpu.max": "max 100000\n",
                "sys/fs/cgroup/user.slice/job.scope/memory.max": "max\n",
                "sys/fs/cgroup/user.slice/memory.max": "68719476736\n",
            },
            [],
            ContainerFacts(None, 16.0, 65536),
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            [],
            ContainerFacts(None, 2.5),
        ),
        ({"proc/self/cgroup": "nonsense\n0::/../..\n", "sys/fs/cgroup/cpu.max": "many\n"}, [], None),
    ],
)
def test_containers_and_cgroup_limits(
    tmp_path: Path, files: dict[str, str], environment: list[str], expected: ContainerFacts | None
) -> None:
    write(tmp_path, files)
    assert system_facts.container(tmp_path, environment) == expected


def test_cuda_toolkits_are_found_once(tmp_path: Path) -> None:
    told = {"cuda": {"name": "CUDA SDK", "version": "12.8.1"}, "nvcc": {"version": "12.8.93"}}
    write(tmp_path, {"cuda-12.8/version.json": json.dumps(told), "cuda-10.2/version.txt": "CUDA Version 10.2.89\n"})
    write(tmp_path, {"cuda-9/version.json": "not JSON"})
    (tmp_path / "cuda").symlink_to("cuda-12.8")
    found = system_facts.cuda_toolkits([tmp_path])
    assert found == {str(tmp_path / "cuda-12.8"): "12.8.1", str(tmp_path / "cuda-10.2"): "10.2.89"}


class _RefusedError(Exception):
    pass


class _Board:
    """The part of pynvml that tells where GPUs are: four, two of them bridged by NVLink."""

    def __init__(self, *, has_switch: bool = False) -> None:
        self.has_switch = has_switch

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12080

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=f"00000000:{handle + 1:02X}:00.0".encode())

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return (9, 0)

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        if handle == 3:
            raise _RefusedError
        return [handle, 0]

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= (18 if self.has_switch else 4) or (handle > 1 and not self.has_switch):
            raise _RefusedError
        return int(self.has_switch or link != 3)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return 2 if self.has_switch else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:
        return self.nvmlDeviceGetPciInfo(1 - handle)

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        if {one, other} == {0, 3}:
            raise _RefusedError
        return 10 if {one, other} == {2, 3} else 50


FAILURES = (_RefusedError, AttributeError)


def test_gpus_tell_where_they_are_and_how_they_reach_each_other(tmp_path: Path) -> None:
    write(tmp_path, {"0000:01:00.0/numa_node": "0\n", "0000:01:00.0/local_cpulist": "0-31\n"})
    write(tmp_path, {"0000:03:00.0/numa_node": "-1\n"})
    found = gpu_topology.places(_Board(), {index: index for index in range(4)}, FAILURES, tmp_path)
    assert found[0] == {
        "pci_address": "0000:01:00.0",
        "numa_node": 0,
        "cpus": "0-31",
        "compute_capability": "9.0",
        "mig_enabled": False,
        "paths": ["X", "NV3", "SYS", "?"],
    }
    assert found[2]["paths"] == ["SYS", "SYS", "X", "PIX"]
    assert (found[2]["numa_node"], found[3]["mig_enabled"]) == (None, None)
    assert gpu_topology.cuda_version(_Board(), FAILURES) == "12.8"


def test_gpus_on_a_switch_reach_each_other_over_all_links() -> None:
    found = gpu_topology.places(_Board(has_switch=True), {0: 0, 1: 1, 3: 3}, FAILURES)
    assert found[3]["paths"] == ["NV18", "NV18", "?", "X"]


def test_a_driver_that_refuses_all_of_it_leaves_it_out() -> None:
    found = gpu_topology.places(object(), {0: 0, 1: 1}, FAILURES)
    assert set(found[0].values()) == {None}
    assert gpu_topology.cuda_version(object(), FAILURES) is None
    assert gpu_topology.places(object(), {}, FAILURES) == {}


def test_facts_survive_readers_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError("no such thing here")

    for name in ("file_systems", "interfaces", "rdma_ports", "numa_nodes", "container", "limits", "cuda_toolkits"):
        monkeypatch.setattr(system_facts, name, fail)
    monkeypatch.setattr("dtagent.telemetry.nvml.LIBRARY", "libnvidia-ml-that-is-absent.so.1")
    found = collection.collect([], Nvml())
    assert isinstance(found, HostFacts)
    assert (found.file_systems, found.interfaces, found.rdma, found.limits, found.container) == (None,) * 5


def test_a_person_reads_words_and_a_program_reads_json() -> None:
    command = [sys.executable, "-I", "-m", "dtagent", "facts", sys.executable, "/no/python"]
    piped = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert json.loads(piped.stdout)["hostname"] == os.uname().nodename
    ours, theirs = pty.openpty()
    child = subprocess.Popen(command, stdout=theirs)
    os.close(theirs)
    text = b""
    try:
        while data := os.read(ours, 65536):
            text += data
    except OSError:
        pass  # So a terminal says that its other end is gone.
    os.close(ours)
    assert child.wait(60) == 0
    lines = text.decode().splitlines()
    assert lines[0].split()[:2] == ["host", f"{os.uname().nodename},"]
    assert any(line.endswith("/no/python is not there") for line in lines)
