"""What a check-up makes of what hosts and the login node say of themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dtagent.protocol.facts import GpuFacts, HostFacts, PythonFacts
from dtagent.protocol.probes import Reached, ReachOutcome

from dttui.cli import main
from dttui.cli.doctor import exit_code_of
from dttui.doctor.between import judge_drift, judge_reachability
from dttui.doctor.examination import Examined, MachineSeen
from dttui.doctor.hosts import judge_host
from dttui.doctor.login_node import judge_login_node, judge_logins
from dttui.doctor.models import Checkup, Site, Trouble
from dttui.doctor.reachability import Pair, Reachability
from dttui.errors import ExitCode, UsageError
from dttui.fleet.deployment.doctor_program import loopback_lines, loose_files, sshd_options
from dttui.fleet.deployment.outcomes import AgentStatus, DaemonSeen, HostProbe, Inspection
from dttui.inventory import Environment
from dttui.spec.findings import Severity, error, info, warning
from tests.unit.seed_cluster import host_facts

GPU = GpuFacts(0, "A100", memory_total_mib=81920)


def environment(name: str = "gpu1", **fields: object) -> Environment:
    return Environment.model_validate({"name": name, "host": f"{name}.example.org", **fields})


def seen(**fields: object) -> MachineSeen:
    known: dict[str, object] = {
        "hostname": "gpu1",
        "user": "li",
        "uid": 1000,
        "own_addresses": ["10.0.0.1"],
        "own_name_s": 0.0,
        "loopback_lines": [],
        "client": "10.0.0.9",
        "client_name_s": 0.0,
        "limits": {},
        "shm_mib": [4096, 4096],
        "cpus": 8,
        "sshd": {},
        "loose": [],
        "firewall": None,
    }
    return MachineSeen.model_validate({**known, **fields})


def agent(version: str | None = "0.1.0", *, is_current: bool = True, current: str | None = "abc") -> AgentStatus:
    probe = HostProbe(
        root="/var/tmp/dtagent-1000",
        python="3.11.2",
        implementation="cpython",
        free_threaded=False,
        executable="/usr/bin/python3",
        has_venv=True,
        architecture="x86_64",
        libc="glibc 2.36",
        free_bytes=100 << 30,
        executable_mount=True,
        current=current,
        version=version,
        broken="" if version else "no module named dtagent",
    )
    daemon = DaemonSeen(pid=1, since=None, digest=current)
    told = Inspection(
        probe=probe, agent_python=None, protocols=[1], logout_kills=False, daemon=daemon, attempts=[], others=[]
    )
    return AgentStatus("gpu1", told, is_current)


def examined(name: str = "gpu1", facts: HostFacts | None = None, **fields: object) -> Examined:
    base = Examined(
        environment=environment(name, python="/opt/py"),
        seen=seen(hostname=name),
        agent=agent(),
        refusal=None,
        mount="/",
        facts=facts,
        sample=None,
        address="10.0.0.1",
        began_s=0.4,
        offset_s=0.0,
        offset_within_s=0.2,
    )
    return replace(base, **fields)  # type: ignore[arg-type]  # named fields


def judged(told: Examined) -> dict[str, Trouble]:
    return {item.finding.code: item for item in judge_host(told, None, 8, [told.offset_s], ("--inventory", "i.yaml"))}


def with_torch(torch: str = "2.9.0", cuda: str | None = "13.0", driver: str = "12.4", **facts: object) -> HostFacts:
    python = PythonFacts("/opt/py", "/opt/py", "3.11.7", {"torch": torch}, torch_cuda=cuda)
    return replace(host_facts(1), gpus=[GPU], pythons=[python], cuda_version=driver, driver_version="550.54", **facts)  # type: ignore[arg-type]  # named fields


@pytest.mark.parametrize(
    ("facts", "code", "command"),
    [
        (with_torch(cuda="13.0", driver="12.4"), "torch-driver", "whl/cu124"),
        (with_torch(cuda="13.0", driver="12.7"), "torch-driver", "whl/cu126"),
        (with_torch(cuda=None, driver="13.1"), "torch-without-cuda", "whl/cu130"),
        (with_torch(cuda="12.8", driver="12.4"), None, ""),  # A driver runs later minor versions of its CUDA.
        (with_torch(cuda="12.4", driver="13.0"), None, ""),
    ],
)
def test_the_cuda_of_torch_is_held_against_the_driver(facts: HostFacts, code: str | None, command: str) -> None:
    found = {name: item for name, item in judged(examined(facts=facts)).items() if name.startswith("torch")}
    assert list(found) == ([code] if code else [])
    if code:
        assert command in found[code].commands[0].line
        assert found[code].commands[0].host == "gpu1"


def test_each_state_of_an_agent_has_the_command_that_mends_it() -> None:
    missing = judged(examined(agent=agent(None, current=None)))
    assert "agent-missing" not in missing  # A daemon without an installation is the embedded cluster's.
    outdated = judged(examined(agent=agent("0.0.9", is_current=False)))["agent-version"]
    assert [item.line for item in outdated.commands] == ["dttui agents upgrade gpu1 --inventory i.yaml"]
    broken = judged(examined(agent=agent(None)))["agent-broken"]
    assert broken.commands[0].line == "dttui agents deploy gpu1 --inventory i.yaml"
    assert "no module named dtagent" in broken.finding.message


def test_a_command_that_needs_root_says_so_to_who_is_not() -> None:
    told = examined(seen=seen(loopback_lines=["127.0.1.1"]))
    (command,) = judged(told)["own-name-loopback"].commands
    assert command.line.startswith("sudo sh -c ")
    (command,) = judged(replace(told, seen=seen(loopback_lines=["127.0.1.1"], user="root")))[
        "own-name-loopback"
    ].commands
    assert command.line.startswith("sed -i")


def test_a_clock_that_is_off_is_named_where_the_measurement_is_that_sharp() -> None:
    assert "clock-skew" in judged(examined(offset_s=90.0, offset_within_s=1.0))
    assert "clock-skew" not in judged(examined(offset_s=1.5, offset_within_s=1.0))


def test_a_slow_start_of_commands_is_looked_for_where_it_may_come_from() -> None:
    over_ssh = judged(examined(began_s=30.0))["slow-login"]
    assert "~/.bashrc" in over_ssh.finding.hint
    by_command = examined(began_s=30.0, environment=environment(host=None, exec=["docker", "exec", "-i", "gpu1"]))
    assert judged(by_command)["slow-login"].finding.hint.endswith("what starts commands there: docker exec -i gpu1")


def test_several_interfaces_are_told_and_none_with_the_address_is_a_warning() -> None:
    both = replace(with_torch(cuda="12.4"), addresses={"eth0": ["10.0.0.1"], "ib0": ["10.1.0.1"]})
    assert "training takes eth0" in judged(examined(facts=both))["interfaces"].finding.message
    assert "address-elsewhere" in judged(examined(facts=both, address="192.0.2.7"))
    docker = replace(both, addresses={"eth0": ["10.0.0.1"], "docker0": ["172.17.0.1"]})
    assert "interfaces" not in judged(examined(facts=docker))


def test_versions_that_differ_have_a_command_for_who_differs() -> None:
    three = [
        examined("gpu1", with_torch("2.9.0", "12.4")),
        examined("gpu2", with_torch("2.9.0", "12.4")),
        examined("gpu3", with_torch("2.8.0+cu124", "12.4")),
    ]
    (item,) = judge_drift(three, ())
    assert item.place is Site.BETWEEN
    assert [(command.host, command.line) for command in item.commands] == [
        ("gpu3", "/opt/py -m pip install torch==2.9.0")
    ]
    drivers = [three[0], examined("gpu2", replace(with_torch("2.9.0", "12.4"), driver_version="535.1"))]
    assert [item.finding.subject for item in judge_drift(drivers, ())] == ["driver"]


def test_what_is_blocked_both_ways_is_said_once_and_one_way_as_that() -> None:
    lost, there = Reached(ReachOutcome.TIMED_OUT, "10.0.0.2"), Reached(ReachOutcome.REACHED, "10.0.0.1")
    hosts = [examined("gpu1"), examined("gpu2", address="10.0.0.2")]
    pairs = [Pair("gpu1", "gpu2", "10.0.0.2", lost, lost), Pair("gpu2", "gpu1", "10.0.0.1", lost, lost)]
    (both,) = judge_reachability(Reachability(pairs), hosts, ())
    assert both.finding.subject == "gpu1 ↔ gpu2"
    assert [(item.host, "10.0.0.1" in item.line or "10.0.0.2" in item.line) for item in both.commands] == [
        ("gpu2", True),
        ("gpu1", True),
    ]
    one_way = [pairs[0], Pair("gpu2", "gpu1", "10.0.0.1", there, there)]
    (way,) = judge_reachability(Reachability(one_way), hosts, ())
    assert way.finding.subject == "gpu1 → gpu2"


def test_no_command_claims_to_open_a_firewall_where_a_name_has_no_address() -> None:
    unknown = Reached(ReachOutcome.UNRESOLVED)
    pairs = [Pair("gpu1", "gpu2", "gpu2.local", unknown, unknown)]
    (item,) = judge_reachability(Reachability(pairs), [examined("gpu1"), examined("gpu2")], ())
    assert item.finding.code == "address-unknown"
    assert [command.line.split()[0] for command in item.commands] == ["ip", "${EDITOR:-vi}"]


def test_only_loopback_lines_with_the_own_name_count() -> None:
    text = (
        "127.0.0.1 localhost\n127.0.1.1\tgpu1.example.org gpu1 # Debian\n::1 localhost ip6-localhost\n10.0.0.1 gpu1\n"
    )
    assert loopback_lines(text, "gpu1") == ["127.0.1.1"]
    assert loopback_lines(text, "gpu2") == []
    assert loopback_lines("127.0.0.1 localhost gpu1\n", "gpu1.example.org") == ["127.0.0.1"]


def test_the_first_word_of_an_ssh_server_counts_and_what_is_below_match_does_not(tmp_path: Path) -> None:
    (tmp_path / "etc/ssh/sshd_config.d").mkdir(parents=True)
    (tmp_path / "etc/ssh/sshd_config").write_text(
        "Include /etc/ssh/sshd_config.d/*.conf\nMaxSessions 10\nMaxStartups=2:30:10\n#UseDNS yes\n"
        "Match User x\nUseDNS yes\n"
    )
    (tmp_path / "etc/ssh/sshd_config.d/a.conf").write_text("maxsessions 1\n")
    assert dict(sshd_options(tmp_path)) == {"maxsessions": "1", "maxstartups": "2:30:10"}
    found = judged(examined(seen=seen(sshd=dict(sshd_options(tmp_path)))))
    assert {"max-sessions", "max-startups"} <= set(found)


def test_the_exit_code_tells_errors_from_warnings_and_those_from_nothing() -> None:
    login = [Trouble(Site.LOGIN, make("c", "login", "m")) for make in (info, warning, error)]
    assert exit_code_of(Checkup((), tuple(login[:1]))) is ExitCode.OK
    assert exit_code_of(Checkup((), tuple(login[:2]))) is ExitCode.WARNINGS
    assert exit_code_of(Checkup((), tuple(login))) is ExitCode.PREFLIGHT
    assert exit_code_of(Checkup((), tuple(login), unreachable=frozenset(["gpu1"]))) is ExitCode.UNREACHABLE
    cut_short = Checkup((), tuple(login), unreachable=frozenset(["gpu1"]), is_cut_short=True)
    assert exit_code_of(cut_short) is ExitCode.NOT_FINISHED


# --- the login node ---------------------------------------------------------------------------------------------------


def here(*environments: Environment, unread: UsageError | None = None) -> dict[str, Trouble]:
    found = {item.finding.code: item for item in judge_login_node(environments, unread, ())}
    wrong = {code: item for code, item in found.items() if item.finding.severity is not Severity.INFO}
    return {code: item for code, item in wrong.items() if not code.endswith("-left")}  # Of whoever else tests here.


@pytest.fixture
def well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.usefixtures("well")
def test_a_login_node_in_order_has_nothing_wrong() -> None:
    assert here() == {}


@pytest.mark.usefixtures("well")
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("LC_ALL", "de_DE.ISO-8859-1", "locale"),
        ("LC_ALL", "C", "locale"),
        ("TERM", "dumb", "terminal"),
        ("TERM", "no-such-terminal", "terminal"),
    ],
)
def test_a_terminal_that_will_not_do_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, code: str
) -> None:
    monkeypatch.setenv(name, value)
    found = here()
    assert list(found) == [code]
    assert found[code].commands[0].line.startswith("export ")


@pytest.mark.usefixtures("well")
def test_a_directory_of_jobs_that_others_can_read_is_closed_by_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "dttui/jobs").mkdir(parents=True)
    (tmp_path / "dttui/jobs").chmod(0o755)
    found = here()
    assert list(found) == ["state-open"]
    subprocess.run(["sh", "-c", found["state-open"].commands[0].line], check=True)
    assert here() == {}


@pytest.mark.usefixtures("well")
def test_keys_that_only_a_person_can_use_are_named_until_an_agent_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(key)], check=True)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    hosts = [environment("gpu1", identity_file=str(key)), environment("gpu2", identity_file=str(key))]
    (item,) = judge_logins(hosts)
    assert item.finding.code == "key-locked"
    assert "gpu1, gpu2" in item.finding.message
    assert f"ssh-add {key}" in item.commands[0].line
    socket = tmp_path / "agent"
    agent_process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        add = {**os.environ, "SSH_ASKPASS": str(tmp_path / "ask"), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":9"}
        (tmp_path / "ask").write_text("#!/bin/sh\necho secret\n")
        (tmp_path / "ask").chmod(0o700)
        for _turn in range(100):
            if socket.exists():
                break
            agent_process.poll()
            subprocess.run(["sleep", "0.05"], check=True)
        subprocess.run(["ssh-add", "-q", str(key)], check=True, env=add, stdin=subprocess.DEVNULL)
        assert list(judge_logins(hosts)) == []
    finally:
        agent_process.terminate()
        agent_process.wait()
    plain = tmp_path / "plain"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(plain)], check=True)
    assert list(judge_logins([environment("gpu1", identity_file=str(plain))])) == []


def test_permissions_that_ssh_refuses_are_named_with_what_mends_them(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh/id_rsa").touch(0o644)
    (tmp_path / ".ssh/id_rsa.pub").touch(0o644)
    (tmp_path / ".ssh/config").touch(0o666)
    (tmp_path / ".ssh/config").chmod(0o666)
    tmp_path.chmod(0o755)
    found = {Path(item["path"]).name: item["change"] for item in loose_files(tmp_path)}
    assert found == {"id_rsa": "go=", "config": "go-w"}
    for item in loose_files(tmp_path):
        subprocess.run(["chmod", item["change"], item["path"]], check=True)
    assert loose_files(tmp_path) == []


@pytest.mark.usefixtures("well")
def test_every_mistake_of_an_inventory_is_told_and_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("environments:\n  - name: a\n    host: a.example.org\n    prot: 22\n")
    assert main(["doctor", "--inventory", str(path), "--output", "json"]) == ExitCode.PREFLIGHT
    document = json.loads(capsys.readouterr().out)
    (found,) = (item for item in document["login"] if item["severity"] == "error")
    assert (found["code"], found["severity"]) == ("inventory", "error")
    assert f"{path}:4" in found["message"]
    assert found["commands"] == [{"run_on": "login", "command": f"${{EDITOR:-vi}} +4 {path}"}]
    assert main(["doctor", "--inventory", str(tmp_path / "none.yaml"), "--output", "human"]) == ExitCode.PREFLIGHT


def test_what_is_left_over_of_jobs_that_are_gone_is_named_with_its_process(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    words = ["-m", "dttui.engine", str(gone)]
    left = subprocess.Popen([sys.executable, "-c", "input()", *words], stdin=subprocess.PIPE)
    try:
        found = [item for item in judge_login_node([], None, ()) if str(gone) in item.finding.message]
        assert [item.finding.code for item in found] == ["controller-left"]
        assert found[0].commands[0].line == f"kill {left.pid}"
    finally:
        left.communicate(b"\n")
