"""What a job needs to go on without a person: values in a file of one's own, an entry that brings controllers back."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dttui.inventory import Environment
from dttui.launch.boot import CALL, entry_commands, is_brought_back
from dttui.launch.secrets_file import read_secrets
from dttui.launch.unattended import unattended_findings
from tests.integration.headless import dttui_here, shell_job


def test_an_open_file_of_secrets_is_not_used_and_said_to_be_open(tmp_path: Path) -> None:
    path = tmp_path / "secrets.env"
    path.write_text('TOKEN=horse-battery\nOTHER="a b=c"\n # no\nnot a line\n')
    path.chmod(0o640)
    assert (read_secrets(tmp_path).values, "chmod 600" in read_secrets(tmp_path).hint) == ({}, True)
    job = shell_job(tmp_path, {"pytorch-dev-env": 1}, "true", secrets=["TOKEN"])
    refused = dttui_here("--demo", "plan", job)
    assert refused.returncode == 2
    assert "mode 0640" in refused.stdout
    path.chmod(0o600)
    assert dict(read_secrets(tmp_path).values) == {"TOKEN": "horse-battery", "OTHER": "a b=c"}
    assert dttui_here("--demo", "plan", job).returncode == 0


def test_an_entry_keeps_what_leads_to_the_jobs_and_is_a_unit_where_the_user_has_a_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a b"))
    for place in ("run/systemd/system", f"run/user/{os.getuid()}/systemd", "var/lib/systemd/linger"):
        (tmp_path / place).mkdir(parents=True)
    linger, write, enable = entry_commands(tmp_path)
    assert linger.startswith("loginctl enable-linger ")
    assert enable == "systemctl --user enable dttui.service"
    subprocess.run(["sh", "-c", write], check=True)
    unit = (Path.home() / ".config/systemd/user/dttui.service").read_text()
    assert f"{sys.executable} -m {CALL}\n" in unit
    assert f"'XDG_STATE_HOME={tmp_path}/a b'" in unit
    assert not is_brought_back(tmp_path)


def test_an_ssh_agent_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(tmp_path / "agent"))
        silent.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        began = time.monotonic()
        host = Environment.model_validate({"name": "gpu1", "host": "gpu1.example.org"})
        codes = [item.code for item in unattended_findings([host, host], (), tmp_path)]
        assert time.monotonic() - began < 30
        assert codes[0] == "unattended"


def test_a_job_of_this_machine_alone_has_nothing_to_wait_for(tmp_path: Path) -> None:
    here = Environment.model_validate({"name": "here", "local": True})
    assert list(unattended_findings([here], ("TOKEN",), tmp_path)) == []
