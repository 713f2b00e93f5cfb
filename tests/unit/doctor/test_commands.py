"""Each warning and error of a check-up comes with a command to copy, or is known here as one that none mends."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable
from dataclasses import replace
from types import ModuleType

import pytest
from dtagent.protocol.facts import HostFacts, PythonFacts, UserLimits
from dtagent.protocol.probes import Reached, ReachOutcome
from dtagent.protocol.rdma import RdmaPort
from dtagent.protocol.sentences import HARDWARE_SLOWDOWN
from dtagent.protocol.telemetry import GpuSample, HostSample

from dttui.doctor import between, hosts, login_node
from dttui.doctor.between import judge_drift, judge_reachability
from dttui.doctor.hosts import judge_host, judge_unreached
from dttui.doctor.login_node import judge_known_hosts
from dttui.doctor.models import Trouble
from dttui.doctor.reachability import Pair, Reachability
from dttui.errors import AgentGoneError, AuthenticationError, HostError, HostKeyError, OutOfTimeError
from dttui.planning.planner import plan
from dttui.preflight.node_reachability import no_free_port
from dttui.spec.findings import Severity
from tests.unit.doctor.test_doctor_judging import agent, environment, examined, seen, with_torch
from tests.unit.seed_cluster import SEED, host_facts, make_job

WITHOUT_COMMAND = {
    "unreachable": "whether it is off, cut off or elsewhere nobody here can tell",
    "refused": "who may log in there is for its administrator to say",
    "unchecked": "the time was up: the same call again, with more of it",
    "agent-root": "the place is somebody else's; the hint names how to choose another in the inventory",
    "known-hosts": "the sentence names the file and its line, and what was meant there only the person knows",
}
"""Code → why no command mends it."""
SAMPLE = HostSample(seq=1, time=0.0, cpu_percent=1.0)
SERVED = agent()


def of_host(**fields: object) -> list[Trouble]:
    """Return what is wrong with a host that is in a job."""
    told = examined(**fields)  # type: ignore[arg-type]  # named fields
    node = next(iter(plan(make_job("pytorch-dev-env"), SEED).nodes)).model_copy(update={"name": "gpu1"})
    return list(judge_host(told, node, 4096, [told.offset_s, 0.0], ()))


def of_gpu(**fields: object) -> list[Trouble]:
    gpu = GpuSample(0, **fields)  # type: ignore[arg-type]  # named fields
    return of_host(facts=with_torch(), sample=replace(SAMPLE, gpus=[gpu]))


def of_probe(**fields: object) -> list[Trouble]:
    probe = SERVED.seen.probe.model_copy(update=fields)
    return of_host(agent=replace(SERVED, seen=SERVED.seen.model_copy(update={"probe": probe})))


def of_drift(*facts: HostFacts) -> list[Trouble]:
    return list(judge_drift([examined(f"gpu{number}", found) for number, found in enumerate(facts)], ()))


def of_pair(ranged: Reached, free: Reached | None) -> list[Trouble]:
    pairs = [Pair("gpu1", "gpu2", "gpu2.local", ranged, free)]
    return list(judge_reachability(Reachability(pairs), [examined("gpu1"), examined("gpu2")], ()))


def of_interpreter(version: str = "3.11.7", nccl: str | None = None) -> HostFacts:
    packages = {"torch": "2.9.0", "nvidia-nccl-cu12": "2"}
    python = PythonFacts("/opt/py", "/opt/py", version, packages, torch_cuda="12.4", nccl=nccl)
    return replace(with_torch(), pythons=[python])


def wrong_with_hosts() -> Iterable[Trouble]:
    """Yield everything that the judging functions warn of, in one way each at least."""
    for failure in (
        HostError("gpu1", "m", "h"),
        HostKeyError("gpu1", "m", "h", fingerprint="SHA256:x"),
        AuthenticationError("gpu1", "m", "h"),
        AgentGoneError("gpu1", "m", "h"),
        OutOfTimeError("gpu1", "m"),
    ):
        yield judge_unreached(failure, "gpu1", ())
    yield from of_host(agent=None, refusal=HostError("gpu1", "m", "h"))
    yield from of_host(silence=HostError("gpu1", "m", "h"))
    yield from of_probe(executable_mount=False)
    yield from of_probe(current="other")
    none = agent(None, current=None)
    yield from of_host(agent=replace(none, seen=none.seen.model_copy(update={"daemon": None})))
    yield from of_host(agent=agent(None))
    yield from of_host(agent=agent("0.0.9", is_current=False))
    yield from of_host(seen=seen(loopback_lines=["127.0.1.1"]))
    yield from of_host(seen=seen(own_name_s=9.0, client_name_s=9.0), began_s=30.0)
    yield from of_host(seen=seen(sshd={"maxsessions": "1", "maxstartups": "2"}))
    loose = [{"path": "/home/li/.ssh/id", "mode": "0644", "change": "go="}]
    yield from of_host(seen=seen(loose=loose), offset_s=90.0)
    rdma = [RdmaPort("mlx5_0", 1, "ACTIVE")]
    limits = UserLimits(open_files=64, locked_memory_kib=64, processes=64)
    yield from of_host(facts=with_torch(limits=limits, rdma=rdma, shm_total_mib=64, logout_kills=True))
    yield from of_probe(free_bytes=1 << 20)
    yield from of_gpu(error="GPU is lost")
    yield from of_gpu(recovery_action="reset")
    yield from of_gpu(memory_repair_failed=True)
    yield from of_gpu(memory_repair_pending=True)
    yield from of_gpu(ecc_uncorrected=3)
    yield from of_gpu(xid_count=1, xid_last=79)
    yield from of_gpu(throttle_reasons=[HARDWARE_SLOWDOWN.code])
    declared = environment(resources={"gpu": {"count": 8}})
    yield from of_host(facts=host_facts(1), environment=declared)
    yield from of_host(facts=host_facts(1, pythons=[PythonFacts("/opt/py", error="no such file")]))
    yield from of_host(facts=host_facts(1, pythons=[PythonFacts("/opt/py", "/opt/py", "3.11.7", {})]))
    yield from of_host(facts=with_torch(cuda="13.0", driver="12.4"))
    yield from of_host(facts=with_torch(cuda=None, driver="12.4"))
    yield from of_host(facts=with_torch(addresses={"eth0": ["10.0.0.2"], "ib0": ["10.1.0.1"]}))


def wrong_between() -> Iterable[Trouble]:
    yield from of_drift(with_torch("2.9.0"), with_torch("2.8.0"))
    yield from of_drift(with_torch(cuda="12.4"), with_torch(cuda="12.6"))
    yield from of_drift(with_torch(), replace(with_torch(), driver_version="535.1"))
    yield from of_drift(of_interpreter("3.11.7"), of_interpreter("3.12.1"))
    yield from of_drift(of_interpreter(nccl="2.27"), of_interpreter(nccl="2.21"))
    there, lost = Reached(ReachOutcome.REACHED, "10.0.0.2"), Reached(ReachOutcome.TIMED_OUT, "10.0.0.2")
    for ranged, free in ((lost, lost), (there, lost), (lost, there)):
        yield from of_pair(ranged, free)
    for outcome in (ReachOutcome.UNRESOLVED, ReachOutcome.STRANGER, ReachOutcome.FAILED):
        yield from of_pair(Reached(outcome), Reached(outcome))
    own = Reached(ReachOutcome.REFUSED, "127.0.1.1")
    yield from of_pair(own, own)
    taken = Reachability(findings=[no_free_port("gpu1", (29500, 29501))])
    yield from judge_reachability(taken, [examined("gpu1")], ())
    yield from judge_known_hosts(["known_hosts:3: no key"])


def test_each_warning_and_error_has_a_command_or_a_reason_to_have_none() -> None:
    bare = set()
    for item in [*wrong_with_hosts(), *wrong_between()]:
        if item.finding.severity is not Severity.INFO and not item.commands:
            bare.add(item.finding.code)
        for command in item.commands:
            assert "\n" not in command.line
    assert bare == set(WITHOUT_COMMAND)


def codes_in(module: ModuleType) -> set[str]:
    """Return the codes of the warnings and errors that a module writes out."""
    calls = (node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call))
    named = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id in ("warning", "error", "make"))
    return {call.args[0].value for call in named if isinstance(call.args[0], ast.Constant)}  # type: ignore[misc]  # texts


def test_whatever_a_check_up_warns_of_is_looked_at_above() -> None:
    looked_at = {item.finding.code for item in [*wrong_with_hosts(), *wrong_between()]}
    assert codes_in(hosts) | codes_in(between) <= looked_at
    of_preflight = {"nofile-low", "nproc-low", "memlock-low", "logout-kills", "shm-small", "disk-low", "clock-skew"}
    of_gpus = {"gpu-error", "gpu-recovery", "gpu-memory", "gpu-ecc", "gpu-xid", "gpu-throttled"}
    assert of_preflight | of_gpus | {"drift", "no-free-port"} <= looked_at


def test_what_is_wrong_with_the_login_node_has_a_command_too() -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(login_node))) if isinstance(node, ast.Call)]
    bare = [call for call in calls if getattr(call.func, "id", "") == "_trouble" and len(call.args) < 2]
    told = [ast.unparse(call) for call in bare if not any(code in ast.unparse(call) for code in WITHOUT_COMMAND)]
    assert told == []


@pytest.mark.parametrize(
    ("troubles", "code", "lines"),
    [
        (of_host(offset_s=90.0), "clock-skew", ["sudo sh -c 'chronyc -a makestep || ntpdate -u pool.ntp.org'"]),
        (of_host(facts=with_torch(logout_kills=True)), "logout-kills", ["loginctl enable-linger li"]),
        (of_gpu(ecc_uncorrected=1), "gpu-ecc", ["nvidia-smi -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER,PERFORMANCE"]),
        (of_gpu(xid_count=1, xid_last=79), "gpu-xid", ["sudo sh -c 'dmesg -T | grep -i xid'"]),
        (
            of_drift(with_torch(cuda="12.4"), with_torch(cuda="12.4"), with_torch(cuda="12.6")),
            "drift",
            [
                "/opt/py -m pip install --force-reinstall torch==2.9.0 "
                "--index-url https://download.pytorch.org/whl/cu124"
            ],
        ),
        (
            of_drift(of_interpreter(), of_interpreter(), of_interpreter("3.12.1")),
            "drift",
            ["ls -1 /usr/bin/python3* /usr/local/bin/python3* /opt/*/bin/python3 ~/*/bin/python3 2>/dev/null"],
        ),
        (
            of_drift(of_interpreter(nccl="2.27"), of_interpreter(nccl="2.27"), of_interpreter(nccl="2.21")),
            "nccl-drift",
            ["/opt/py -m pip install nvidia-nccl-cu12==2.27"],
        ),
    ],
)
def test_the_command_is_the_one_that_mends_it(troubles: list[Trouble], code: str, lines: list[str]) -> None:
    (found,) = (item for item in troubles if item.finding.code == code)
    assert [command.line for command in found.commands] == lines


@pytest.mark.parametrize(
    ("item", "limit"),
    [("nofile", "65536"), ("nproc", "65536"), ("memlock", "unlimited")],
)
def test_a_limit_is_raised_for_logins_to_come_and_the_agent_started_anew(item: str, limit: str) -> None:
    limits = UserLimits(open_files=64, locked_memory_kib=64, processes=64)
    rdma = [RdmaPort("mlx5_0", 1, "ACTIVE")]
    (found,) = (
        told for told in of_host(facts=with_torch(limits=limits, rdma=rdma)) if told.finding.code == f"{item}-low"
    )
    first, *rest = [command.line for command in found.commands]
    assert f"li - {item} {limit}" in first
    assert [line.split()[0] for line in rest] == ["/var/tmp/dtagent-1000/current/bin/dtagent", "dttui"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--inventory", "/srv/my hosts.yaml"), "${EDITOR:-vi} '/srv/my hosts.yaml'"),
        ((), '${EDITOR:-vi} "${DTTUI_INVENTORY:-${XDG_CONFIG_HOME:-$HOME/.config}/dttui/inventory.yaml}"'),
    ],
)
def test_the_inventory_that_is_to_be_corrected_is_the_one_that_was_read(options: tuple[str, ...], named: str) -> None:
    told = examined(facts=with_torch(addresses={"eth0": ["10.0.0.2"], "ib0": ["10.1.0.1"]}))
    (found,) = (item for item in judge_host(told, None, 8, [0.0], options) if item.finding.code == "address-elsewhere")
    assert [(command.host, command.line) for command in found.commands] == [
        ("gpu1", "ip -br address"),
        (None, named),
    ]
