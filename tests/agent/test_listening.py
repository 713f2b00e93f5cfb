"""Where the stores of a job listen: on the training address alone, and on all addresses where that cannot be."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from dtagent.payload import listening, torchrun
from dtagent.system.interfaces import narrow, reserve_port

from tests.gloo import LEAVES
from tests.ports import held_port
from tests.torch_forkserver import SCRIPT as RUN_SCRIPT
from tests.torch_forkserver import TorchStem

ELSEWHERE = "192.0.2.1"
"""An address of documentation: no host's."""


def reaches(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2.0).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("address", "at"),
    [
        ("127.0.0.2", "127.0.0.2"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("localhost", "127.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
    ],
)
def test_it_is_bound_to_the_one_address(address: str, at: str) -> None:
    bound = listening.on_address(address, 0)
    assert bound is not None
    with bound:
        assert bound.getsockname()[0] == at
        bound.listen()
        port = bound.getsockname()[1]
        assert reaches(at, port)
        assert not reaches("127.0.0.3", port)


@pytest.mark.parametrize(
    ("known_as", "why"),
    [
        ([ELSEWHERE], "is no address of this host"),
        (["127.0.1.1"], "is a name that stands for loopback here"),
        ([ELSEWHERE, "192.0.2.2"], "is a name that stands for several addresses"),
        (["2001:db8::1", ELSEWHERE], "is a name that stands for several addresses"),
        ([], "cannot be resolved here"),
    ],
)
def test_a_name_that_does_not_tell_one_address_of_this_host_leaves_all_and_is_told(
    known_as: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(_name: str, port: int, **_options: Any) -> list[Any]:
        if not known_as:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        families = [socket.AF_INET6 if ":" in item else socket.AF_INET for item in known_as]
        kind = socket.SOCK_STREAM
        return [(family, kind, 6, "", (item, port)) for family, item in zip(families, known_as, strict=True)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert listening.on_address("gpu1.example", 0) is None
    assert why in capsys.readouterr().err


def test_an_address_of_another_host_leaves_all_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert listening.on_address(ELSEWHERE, 0) is None
    assert "is no address of this host" in capsys.readouterr().err


def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        listening.on_address("127.0.0.1", taken.getsockname()[1])


def test_a_probe_listens_where_the_job_will() -> None:
    for address, at in (("127.0.0.2", "127.0.0.2"), (ELSEWHERE, "::")):
        held = reserve_port(20000, 40000)
        assert held is not None
        port = held.getsockname()[1]
        with narrow(held, address) as bound:
            assert bound.getsockname()[:2] == (at, port)


SCRIPT = (
    """
import os, time, torch.distributed as dist
dist.init_process_group("gloo")
if os.environ["RANK"] == "0":
    listening = [line.split()[1] for table in ("tcp", "tcp6") for line in open(f"/proc/net/{table}").readlines()[1:]
                 if line.split()[3] == "0A" and line.split()[1].endswith(":%04X" % int(os.environ["MASTER_PORT"]))]
    print("at", *listening, flush=True)
"""
    + LEAVES
)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("address", "at"),
    [
        ("127.0.0.2", "0200007F"),
        ("::1", "00000000000000000000000001000000"),
        ("localhost", "0100007F"),
    ],
    ids=["an address", "IPv6", "this host alone"],
)
def test_ranks_of_a_static_job_meet_in_a_store_that_listens_on_the_training_address_alone(
    address: str, at: str, tmp_path: Path, torch_forkserver: TorchStem
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    argv = [torchrun.__file__, "--nnodes=1", "--nproc-per-node=2", "--node-rank=0"]
    env = {**os.environ, "DTTUI_LOGS": str(tmp_path / "logs"), "GLOO_SOCKET_IFNAME": "lo"}
    with held_port() as port:
        argv += [f"--master-addr={address}", f"--master-port={port}", "--max-restarts=0"]
        done = torch_forkserver.run(RUN_SCRIPT, [*argv, str(tmp_path / "train.py")], cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("at ")]
    assert [item.partition(":")[0] for item in told.split()[1:]] == [at], told


@pytest.mark.torch
def test_torchrun_says_by_itself_what_is_wrong_where_its_port_is_taken(
    tmp_path: Path, torch_forkserver: TorchStem
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        argv = [torchrun.__file__, "--nnodes=1", "--nproc-per-node=1", "--node-rank=0"]
        argv += ["--master-addr=127.0.0.1", f"--master-port={taken.getsockname()[1]}", "--rdzv-conf=timeout=10"]
        env = {**os.environ, "DTTUI_LOGS": str(tmp_path / "logs")}
        done = torch_forkserver.run(RUN_SCRIPT, [*argv, "train.py"], cwd=tmp_path, env=env)
    assert done.returncode != 0
    assert "EADDRINUSE" in done.stderr
