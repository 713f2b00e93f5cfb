"""What `ssh -G` says, merged with the inventory, and what stands in where there is no ssh."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dttui.errors import HostUnreachableError
from dttui.transport.ssh import ssh_config as module
from dttui.transport.ssh.config_blocks import ConfigBlocks
from dttui.transport.ssh.ssh_config import HostQuery, SshConfig, UnknownKeyPolicy, split_hop

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is missing: install openssh-client")

CONFIG = """
Host gpu
  HostName gpu1.example.org
  User alice
  Port 2222
  IdentityFile ~/keys/%h-%r
  IdentityFile "/keys/with a space"
  CertificateFile /keys/cert.pub
  IdentitiesOnly yes
  IdentityAgent /run/agent.sock
  HostKeyAlias Cluster-Node
  UserKnownHostsFile ~/a ~/b
  GlobalKnownHostsFile /etc/one
  AddressFamily inet6
  ProxyJump bob@bastion:2200,inner
  StrictHostKeyChecking accept-new
  NumberOfPasswordPrompts 5
Host quiet
  BatchMode yes
  StrictHostKeyChecking yes
  PasswordAuthentication no
  KbdInteractiveAuthentication no
  IdentityAgent none
  ProxyCommand relay --to %h:%p as %r %%
Host both
  ProxyJump none
"""


@pytest.fixture
def config(tmp_path: Path) -> SshConfig:
    path = tmp_path / "config"
    path.write_text(CONFIG)
    return SshConfig(path)


def test_everything_that_a_connection_needs_is_read(config: SshConfig) -> None:
    target = config.resolve(HostQuery("gpu"))
    home = Path(os.environ["HOME"])
    assert (target.name, target.hostname, target.port, target.user) == ("gpu", "gpu1.example.org", 2222, "alice")
    assert target.identity_file is None
    assert target.identity_files == (home / "keys/gpu1.example.org-alice", Path("/keys/with a space"))
    assert target.certificate_files == (Path("/keys/cert.pub"),)
    assert target.identities_only
    assert target.agent_socket == Path("/run/agent.sock")
    assert [path.name for path in target.known_hosts_files] == ["a", "b", "one"]
    assert target.family is socket.AF_INET6
    assert target.proxy_jump == ("bob@bastion:2200", "inner")
    assert target.proxy_command is None
    assert target.unknown_key_policy is UnknownKeyPolicy.ACCEPT
    assert target.prompts == 5
    assert target.known_as == "cluster-node"


def test_a_host_without_a_section_has_the_defaults(config: SshConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/mine.sock")
    target = config.resolve(HostQuery("Other.Example.org"))
    assert (target.hostname.lower(), target.port) == ("other.example.org", 22)
    assert target.known_as == "other.example.org"
    assert target.agent_socket == Path("/run/mine.sock")
    assert Path(os.environ["HOME"]) / ".ssh/id_ed25519" in target.identity_files
    assert target.unknown_key_policy is UnknownKeyPolicy.ASK
    assert target.methods == {"publickey", "keyboard-interactive", "password"}
    assert target.prompts == 3
    assert target.proxy_jump == ()


def test_the_inventory_wins(config: SshConfig) -> None:
    target = config.resolve(HostQuery("gpu", "carol", 22, "other", "~/mine"))
    assert (target.user, target.port, target.proxy_jump) == ("carol", 22, ("other",))
    assert target.identity_file == Path(os.environ["HOME"]) / "mine"
    # What the configuration says of identities depends on the user, and here that is carol.
    assert target.identity_files[0].name == "gpu1.example.org-carol"


def test_what_the_configuration_forbids_is_not_done(config: SshConfig) -> None:
    target = config.resolve(HostQuery("quiet", "alice", 2022))
    assert target.prompts == 0
    assert target.methods == {"publickey"}
    assert target.unknown_key_policy is UnknownKeyPolicy.REFUSE
    assert target.agent_socket is None
    assert target.proxy_command == "relay --to quiet:2022 as alice %"


def test_the_local_user_is_the_one_of_the_user_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.setenv(name, "mallory")
    path = tmp_path / "config"
    path.write_text("Host *\n  IdentityFile /keys/%u\n")
    user = pwd.getpwuid(os.getuid()).pw_name
    for config in (SshConfig(path), SshConfig(path, binary=None)):
        target = config.resolve(HostQuery("gpu1"))
        assert target.user == user
        assert target.identity_files == (Path(f"/keys/{user}"),)


def test_proxy_jump_none_is_none(config: SshConfig) -> None:
    assert config.resolve(HostQuery("both")).proxy_jump == ()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that `ssh -G` was run for."""
    hosts: list[str] = []
    original = subprocess.run

    def counting(command: list[str], **options: object) -> object:
        hosts.append(command[-1])
        return original(command, **options)  # type: ignore[call-overload]  # passed on as it came

    monkeypatch.setattr(subprocess, "run", counting)
    return hosts


def test_an_answer_is_used_again_for_a_while(
    config: SshConfig, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = config.resolve(HostQuery("gpu"))
    assert config.resolve(HostQuery("gpu")) is first
    config.resolve(HostQuery("gpu", "someone"))
    assert len(asked) == 2
    monkeypatch.setattr(module, "CACHE_S", -1.0)
    config.resolve(HostQuery("both"))
    config.resolve(HostQuery("both"))
    assert len(asked) == 4


# One `ssh -G` for hosts that the configuration treats alike

ALIKE = """
Include {directory}/more/*.conf
Host node* !node9
  User alice
  IdentityFile ~/keys/%h
  ProxyJump gate
Host *.example.org
  Port 2222
Host *
  ControlPath /run/%C
"""
FLEET = [*(f"node{number}" for number in range(12)), "node3.example.org", "node4.example.org", "10.0.0.7", "10.0.0.8"]


def resolve_alone(path: Path, host: str) -> object:
    return SshConfig(path).resolve(HostQuery(host))


def test_hosts_that_are_alike_are_asked_about_once_and_resolve_as_each_alone_would(
    tmp_path: Path, asked: list[str]
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.conf").write_text("Host node7 node8\n  Port 2200\n")
    path = tmp_path / "config"
    path.write_text(ALIKE.format(directory=tmp_path))
    config = SshConfig(path)
    together = [config.resolve(HostQuery(host)) for host in FLEET]
    assert asked == ["node0", "node7", "node9", "node3.example.org"]
    assert together == [resolve_alone(path, host) for host in FLEET]


def test_many_threads_that_come_at_once_ask_once(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "config"
    path.write_text("User alice\n")
    config = SshConfig(path)
    with ThreadPoolExecutor(16) as pool:
        targets = list(pool.map(lambda number: config.resolve(HostQuery(f"node{number}")), range(64)))
    assert [target.hostname for target in targets] == [f"node{number}" for number in range(64)]
    assert len(asked) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Match host node*\n  User alice\n",
        "Match exec true\n  User alice\n",
        "Host node*\n  HostName %h.example.org\n",
        "CanonicalizeHostname yes\nCanonicalDomains example.org\n",
        'Host "node1" node2\n  User alice\n',
        "IdentityFile ~/keys/%C\n",
        "Include ${{DTTUI_TEST_CONFIG}}\n",
        "Include {directory}/loop\n",
    ],
)
def test_where_only_ssh_can_tell_each_host_is_asked_about(text: str, tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "config"
    path.write_text(text.format(directory=tmp_path))
    (tmp_path / "loop").write_text("".join(f"Include {tmp_path}/loop{number}\n" for number in range(1)))
    (tmp_path / "loop0").write_text("Match host x\n")
    config = SshConfig(path)
    for host in ("node1", "node2", "node3"):
        assert config.resolve(HostQuery(host)) == resolve_alone(path, host)
    assert [host for host in asked[::2]] == ["node1", "node2", "node3"]


@pytest.mark.parametrize("host", ["Node1", "bob@node1", "127.1", "0x7f.1", "::1", "node1%eth0", "-x", "*"])
def test_a_name_that_ssh_may_read_in_a_way_of_its_own_is_never_taken_for_another(host: str, tmp_path: Path) -> None:
    assert ConfigBlocks(tmp_path / "none").likeness(host) is None
    assert ConfigBlocks(tmp_path / "none").likeness("node1") == ()


def test_a_configuration_with_a_mistake_is_an_error_with_ssh_s_own_words(config: SshConfig) -> None:
    assert config.config_file is not None
    config.config_file.write_text("Hots gpu\n")
    with pytest.raises(HostUnreachableError) as caught:
        config.resolve(HostQuery("gpu"))
    assert "line 1: Bad configuration option: hots" in caught.value.message
    assert "ssh -G gpu" in caught.value.hint


def test_an_ssh_that_hangs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "ssh"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(module, "_SSH_G_TIMEOUT_S", 0.2)
    with pytest.raises(HostUnreachableError, match="cannot be read"):
        SshConfig(binary=str(slow)).resolve(HostQuery("gpu"))


def test_without_ssh_the_file_is_read_here(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "Host gpu\n HostName gpu1.example.org\n User alice\n Port 2222\n IdentityFile ~/k\n ProxyJump bastion\n"
    )
    config = SshConfig(path, binary=None)
    target = config.resolve(HostQuery("gpu"))
    assert (target.hostname, target.port, target.user) == ("gpu1.example.org", 2222, "alice")
    assert target.identity_files == (Path(os.environ["HOME"]) / "k",)
    assert target.proxy_jump == ("bastion",)
    assert target.unknown_key_policy is UnknownKeyPolicy.ASK
    assert config.resolve(HostQuery("gpu", "carol", 22)).user == "carol"
    plain = SshConfig(tmp_path / "none", binary=None).resolve(HostQuery("10.0.0.1"))
    assert (plain.hostname, plain.port) == ("10.0.0.1", 22)
    assert Path(os.environ["HOME"]) / ".ssh/known_hosts" in plain.known_hosts_files


@pytest.mark.parametrize(
    "text",
    [
        "Host node\n UserKnownHostsFile none\n StrictHostKeyChecking no\n",
        "Host node\n HostName 127.0.0.1\n UserKnownHostsFile /keys/%h-%n /keys/%p\n",
        "Host node\n RevokedHostKeys /keys/revoked\n RequiredRSASize 3072\n CheckHostIP yes\n",
        "Match originalhost node\n Port 99\nHost *\n StrictHostKeyChecking accept-new\n",
        "Host n?de !gpu\r\n Port 6\r\nHost *\r\n GlobalKnownHostsFile /keys/all\r\n",
        "Host * !node\n Port 4\n",
    ],
)
def test_without_ssh_the_same_decides_about_a_host_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(f"{text}Host *\n UserKnownHostsFile /keys/a /keys/b\n".encode())
    asked, read = (SshConfig(path, binary).resolve(HostQuery("node")) for binary in (shutil.which("ssh"), None))
    for name in ("hostname", "port", "known_hosts_files", "unknown_key_policy", "revoked_host_keys", "checks_address"):
        assert getattr(read, name) == getattr(asked, name), name


@pytest.mark.parametrize("line", ["Include other", "  include=~/*.conf", 'INCLUDE "a b"', 'Match host x exec "a"'])
def test_without_ssh_a_configuration_is_refused_that_only_ssh_can_follow(tmp_path: Path, line: str) -> None:
    path = tmp_path / "config"
    path.write_text(f"# Include is for others\nHost node\n{line}\n")
    with pytest.raises(HostUnreachableError, match="config has Include") as caught:
        SshConfig(path, binary=None).resolve(HostQuery("node"))
    assert "OpenSSH client" in caught.value.hint


@pytest.mark.parametrize(
    ("hop", "query"),
    [
        ("bastion", HostQuery("bastion")),
        ("bob@bastion", HostQuery("bastion", "bob")),
        ("bob@bastion:2200", HostQuery("bastion", "bob", 2200)),
        ("ssh://bob@bastion:2200/", HostQuery("bastion", "bob", 2200)),
        ("[2001:db8::1]:2200", HostQuery("2001:db8::1", None, 2200)),
        ("2001:db8::1", HostQuery("2001:db8::1")),
        (" bob@dom@bastion ", HostQuery("bastion", "bob@dom")),
    ],
)
def test_the_entries_of_a_jump_list_are_taken_apart(hop: str, query: HostQuery) -> None:
    assert split_hop(hop) == query
