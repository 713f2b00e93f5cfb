"""A shell on a host at a person's own terminal: by the way that the inventory names, in the job's directory."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from pathlib import Path

import psutil
import pytest

from dttui import locations
from dttui.errors import HostUnreachableError
from dttui.inventory.models import Environment
from dttui.transport.host_shell import HostShell, host_shell, open_shell
from tests.waiting import until

JOB = "gpt-1130-153206-ab12"
CHECKPOINTS = f"/var/tmp/dtagent-7/jobs/{JOB}/0/checkpoints"


def test_ssh_goes_where_dttui_goes_and_begins_in_the_directory_of_the_job() -> None:
    host = Environment(name="a", host="gpu1", user="li", port=2222, identity_file="~/key", proxy_jump="gate")
    argv = host_shell(host, JOB, CHECKPOINTS).argv
    assert argv[:2] == ("ssh", "-t")
    assert argv[-3:-1] == ("--", "gpu1")
    for option, value in (("-l", "li"), ("-p", "2222"), ("-J", "gate"), ("-i", os.path.expanduser("~/key"))):
        assert argv[argv.index(option) + 1] == value
    assert f"cd /var/tmp/dtagent-7/jobs/{JOB} " in argv[-1]


def test_host_keys_that_were_confirmed_here_are_known_and_a_host_s_own_file_counts_alone() -> None:
    keys = locations.known_hosts_file()
    keys.parent.mkdir(parents=True, exist_ok=True)
    keys.write_text("")
    assert any(str(keys) in word for word in host_shell(Environment(name="a", host="gpu1"), JOB, None).argv)
    own = host_shell(Environment(name="a", host="gpu1", known_hosts="/etc/keys"), JOB, None).argv
    assert "UserKnownHostsFile=/etc/keys" in own
    assert not any(str(keys) in word for word in own)


def test_what_the_host_s_shell_is_given_leads_to_the_directory_whatever_its_name(tmp_path: Path) -> None:
    place = tmp_path / "it's $HOME" / "jobs" / JOB
    place.mkdir(parents=True)
    script = host_shell(Environment(name="a", host="gpu1"), JOB, f"{place}/0/checkpoints").argv[-1]
    said = subprocess.run(  # As sshd does: the login shell reads one line.
        ["/bin/sh", "-c", script], input="pwd\n", env={"SHELL": "/bin/sh", "PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip().splitlines()[-1] == str(place)


def test_without_a_known_path_the_usual_place_of_the_agent_is_tried_or_its_own() -> None:
    usual = host_shell(Environment(name="a", host="gpu1"), JOB, "/scratch/checkpoints").argv[-1]
    assert f'/var/tmp/dtagent-$(id -u)"/jobs/{JOB}' in usual
    own = host_shell(Environment(name="a", host="gpu1", agent_root="/scratch/me/agent"), JOB, None).argv[-1]
    assert f"/scratch/me/agent/jobs/{JOB}" in own


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        ("docker exec -i train1", "docker exec -i -t train1 sh"),
        ("kubectl exec -i pod-1 --", "kubectl exec -i -t pod-1 -- sh"),
        ("srun --jobid 7 --overlap", "srun --pty --jobid 7 --overlap sh"),
        ("nsenter -t 71 -m -p", "nsenter -t 71 -m -p sh"),
        ("docker exec -i -t x", "docker exec -i -t x sh"),
        ("~/bin/kubectl exec -i pod-1 --", "/home/li/bin/kubectl exec -i -t pod-1 -- sh"),
    ],
)
def test_a_command_that_reaches_a_host_is_asked_for_a_terminal(
    words: str, argv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/li")
    host = Environment(name="a", host=None, exec=tuple(shlex.split(words)))
    shell = host_shell(host, JOB, CHECKPOINTS)
    assert shlex.join(shell.argv) == argv
    assert f"/var/tmp/dtagent-7/jobs/{JOB}" in shell.told


def test_this_machine_gives_the_person_s_own_shell_where_the_job_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/bash")
    here = Environment(name="a", host=None, local=True, agent_root=str(tmp_path))
    assert host_shell(here, JOB, None) == HostShell("a", ("/bin/bash",), None), "where there is no such directory"
    (tmp_path / "jobs" / JOB).mkdir(parents=True)
    assert host_shell(here, JOB, None).directory == str(tmp_path / "jobs" / JOB)


async def test_a_shell_ends_with_its_status_and_one_that_is_not_there_says_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert await open_shell(HostShell("a", ("/bin/sh", "-c", "pwd; exit 3"), "/")) == 3
    assert capfd.readouterr().out.splitlines() == ["a shell on a; `exit` leads back", "/"]
    with pytest.raises(HostUnreachableError, match="no-such-program cannot be started"):
        await open_shell(HostShell("a", ("no-such-program",)))


async def test_a_shell_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    script = f"echo $$ > {started}.new; mv {started}.new {started}; exec sleep 600"
    using = asyncio.create_task(open_shell(HostShell("a", ("/bin/sh", "-c", script))))
    await until(started.exists, "it has begun")
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert not psutil.pid_exists(int(started.read_text()))
