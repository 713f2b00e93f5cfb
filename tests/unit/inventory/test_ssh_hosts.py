"""Hosts of an ssh configuration, as environments to import."""

from __future__ import annotations

from pathlib import Path

import pytest

from dttui.inventory import import_ssh_config
from dttui.spec.problems import DocumentError


@pytest.fixture
def ssh(isolated_environment: None) -> Path:
    """The ~/.ssh of this test's own home."""
    directory = Path.home() / ".ssh"
    directory.mkdir()
    return directory


def names(path: Path) -> list[str]:
    found = import_ssh_config(path)
    assert all(item.name == item.host for item in found)
    return [item.name for item in found]


def test_concrete_aliases_are_found_and_patterns_are_not(ssh: Path) -> None:
    config = ssh / "config"
    config.write_text(
        "# Host commented\n"
        "Host gpu1 gpu2 *.example.org !bad web?\n"
        "  HostName 10.0.0.1\n"
        'host="quoted"\n'
        "HOST\tgpu3 # the third\n"
        "Host *\n"
        "Match host gpu4\n"
        "  User x\n"
        "Host gpu1 -oEvil=1\n"
        'Host "never closed\n'
        "Host \n"
    )
    assert names(config) == ["gpu1", "gpu2", "quoted", "gpu3"]


def test_includes_are_followed_from_the_ssh_directory(ssh: Path) -> None:
    (ssh / "conf.d").mkdir()
    (ssh / "conf.d" / "b.conf").write_text("Host b\n")
    (ssh / "conf.d" / "a.conf").write_text("Host a\nInclude deeper\n")
    (ssh / "deeper").write_text("Host deep\n")
    other = ssh.parent / "other"
    other.write_text("Host tilde\n")
    config = ssh.parent / "elsewhere"
    config.write_text("Host first\nInclude conf.d/*.conf ~/other\nInclude missing\nHost last\n")
    assert names(config) == ["first", "a", "deep", "b", "tilde", "last"]


def test_includes_that_lead_back_end(ssh: Path) -> None:
    config = ssh / "config"
    config.write_text("Include config\nInclude other\nHost a\n")
    (ssh / "other").write_text("Include config\nHost b\n")
    assert names(config) == ["b", "a"]


def test_includes_deeper_than_ssh_follows_are_left_out(ssh: Path) -> None:
    for level in range(20):
        (ssh / f"c{level}").write_text(f"Host h{level}\nInclude c{level + 1}\n")
    assert names(ssh / "c0") == [f"h{level}" for level in range(17)]


def test_bytes_that_are_no_text_do_not_hide_the_other_hosts(ssh: Path) -> None:
    (ssh / "config").write_bytes(b"Host good\nHost caf\xe9\n# \xff\nHost better\n")
    assert names(ssh / "config") == ["good", "better"]


def test_a_missing_configuration_is_told_so(ssh: Path) -> None:
    with pytest.raises(DocumentError, match="cannot be read: No such file or directory"):
        import_ssh_config(ssh / "config")
