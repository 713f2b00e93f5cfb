"""Which ssh configuration is read: one and the same by the import of hosts and by what connects to them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from dttui import locations
from dttui.compose.documents import importable_hosts
from dttui.inventory.models import Inventory
from dttui.transport.ssh.ssh_config import HostQuery, SshConfig


def write_config(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("Host gpu\n  HostName gpu1.example.org\n")
    return path


def test_hosts_that_are_imported_are_resolved_by_the_same_file() -> None:
    written = write_config(Path.home() / ".ssh" / "config")
    assert locations.ssh_config_override() == locations.ssh_config_file() == written
    assert [item.name for item in importable_hosts(Inventory()).new] == ["gpu"]
    assert SshConfig(locations.ssh_config_override()).resolve(HostQuery("gpu")).hostname == "gpu1.example.org"


def test_a_file_that_is_named_goes_before_the_one_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(Path.home() / ".ssh" / "config")
    named = tmp_path / "named"
    monkeypatch.setenv("DTTUI_SSH_CONFIG", str(named))
    assert locations.ssh_config_override() == locations.ssh_config_file() == named


def test_ssh_reads_its_own_file_where_that_is_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", pwd.getpwuid(os.getuid()).pw_dir)
    assert locations.ssh_config_override() is None
