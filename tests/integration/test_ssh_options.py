"""Options of the person's ssh that say which hosts, keys and algorithms to trust: followed, or the host is refused."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from dttui.errors import AuthenticationError, HostError, HostKeyError
from dttui.inventory.models import Environment
from dttui.transport.ssh.hop import Hop
from dttui.transport.ssh.host_keys import HostKeyCheck
from dttui.transport.ssh.known_hosts import HostKey, append
from dttui.transport.ssh.ssh_config import HostQuery, SshConfig
from dttui.transport.ssh.threads import Threads
from dttui.transport.ssh.transport import SshTransport
from tests.integration.ssh_fixtures import NOBODY, TIMEOUT_S, configure
from tests.integration.sshd import Sshd, make_key, run, running_sshd

pytestmark = pytest.mark.sshd


async def connects(transport: SshTransport, environment: Environment) -> str:
    """Log in, and return the cipher that was agreed on."""
    connection = await transport.connect(environment, NOBODY, TIMEOUT_S)
    cipher = str(vars(connection.link.transport)["remote_cipher"])
    await connection.close()
    return cipher


async def refused(transport: SshTransport, environment: Environment, option: str) -> HostError:
    with pytest.raises(HostError) as caught:
        await connects(transport, environment)
    assert option in f"{caught.value.message} {caught.value.hint}"
    return caught.value


async def test_the_key_of_a_gateway_is_not_taken_where_another_is_known_for_the_port(
    sshd: Sshd, transport: SshTransport, tmp_path: Path
) -> None:
    """What answers on a forwarded port is the gateway itself, whose key is known without a port."""
    kind, blob = sshd.host_key().read_text().split()[:2]
    behind = make_key(tmp_path / "behind").with_suffix(".pub").read_text().split()[1]
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {kind} {behind}\n127.0.0.1 {kind} {blob}\n")
    assert isinstance(await refused(transport, sshd.environment(), "has changed"), HostKeyError)


@pytest.mark.parametrize(
    ("line", "cipher"),
    [
        ("Ciphers aes256-ctr,aes128-ctr", "aes256-ctr"),
        ("Ciphers -aes128*", "aes192-ctr"),
        ("Ciphers ^aes192-ctr", "aes192-ctr"),
        ("Ciphers +aes128-cbc", None),
        ("MACs hmac-sha1", "aes128-gcm@openssh.com"),
        ("KexAlgorithms ecdh-sha2-nistp384,ecdh-sha2-nistp256", None),
    ],
)
async def test_lists_of_algorithms_are_followed_in_their_order(
    sshd: Sshd, transport: SshTransport, ssh_config: Path, line: str, cipher: str | None
) -> None:
    configure(ssh_config, line)
    agreed = await connects(transport, sshd.environment())
    assert cipher is None or agreed == cipher


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("Ciphers", "chacha20-poly1305@openssh.com"),
        ("KexAlgorithms", "sntrup761x25519-sha512@openssh.com"),
        ("HostKeyAlgorithms", "ssh-ed25519-cert-v01@openssh.com"),
        ("HostKeyAlgorithms", "rsa-sha2-512"),
        ("KnownHostsCommand", "/bin/true"),
    ],
)
async def test_where_an_option_leaves_nothing_that_dttui_has_the_host_is_refused_and_the_option_named(
    sshd: Sshd, transport: SshTransport, ssh_config: Path, option: str, value: str
) -> None:
    configure(ssh_config, f"{option} {value}")
    await refused(transport, sshd.environment(), option)


@pytest.mark.parametrize("form", ["text", "krl", "missing", "broken", "spoilt"])
async def test_a_key_in_revoked_host_keys_is_refused_and_so_is_any_where_the_file_cannot_be_read(
    sshd: Sshd, transport: SshTransport, ssh_config: Path, tmp_path: Path, form: str
) -> None:
    other, revoked = make_key(tmp_path / "other").with_suffix(".pub"), tmp_path / "revoked"
    configure(ssh_config, f"RevokedHostKeys {revoked}")

    def revoke(key: Path) -> None:
        if form == "text":
            revoked.write_text(f"# keys\n\n{key.read_text()}")
        elif form == "krl":
            run("ssh-keygen", "-q", "-k", "-f", str(revoked), str(key))
        elif form == "spoilt":
            revoked.write_text(f"{other.read_text()}no key\n")
        elif form == "broken":
            revoked.write_bytes(b"SSHKRL\n\0" + b"\xff" * 40)

    revoke(other)
    if form in ("text", "krl"):
        await connects(transport, sshd.environment())
    revoke(sshd.host_key())
    assert isinstance(await refused(transport, sshd.environment(), f"RevokedHostKeys {revoked}"), HostKeyError)


async def test_an_rsa_key_that_is_too_short_is_not_taken_neither_the_hosts_nor_ones_own(
    transport: SshTransport, ssh_config: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "sshd"
    directory.mkdir()
    run("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(directory / "host_rsa"))
    mine = tmp_path / "mine"
    run("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(mine))
    with running_sshd(directory, host_key_kinds=("rsa",)) as short, running_sshd(tmp_path / "other") as other:
        await connects(transport, short.environment())
        other.authorize(mine.with_suffix(".pub"))
        configure(ssh_config, "RequiredRSASize 3072")
        fresh = SshTransport(ssh_config)
        assert isinstance(await refused(fresh, short.environment(), "RequiredRSASize"), HostKeyError)
        error = await refused(fresh, other.environment(identity_file=str(mine)), "RequiredRSASize")
        assert isinstance(error, AuthenticationError)
        await fresh.close()


async def test_a_key_of_a_kind_that_the_configuration_rules_out_is_not_offered(
    sshd: Sshd, transport: SshTransport, ssh_config: Path
) -> None:
    configure(ssh_config, "PubkeyAcceptedAlgorithms -ssh-ed25519")
    assert isinstance(await refused(transport, sshd.environment(), "PubkeyAcceptedAlgorithms"), AuthenticationError)
    assert "Accepted" not in sshd.log


async def test_preferred_authentications_leave_the_others_out(
    sshd: Sshd, transport: SshTransport, ssh_config: Path
) -> None:
    configure(ssh_config, "PreferredAuthentications password")
    assert isinstance(await refused(transport, sshd.environment(), "let"), AuthenticationError)


async def test_a_changed_key_is_refused_where_ssh_would_go_on_and_the_option_is_named(
    sshd: Sshd, transport: SshTransport, ssh_config: Path, tmp_path: Path
) -> None:
    kind, blob = make_key(tmp_path / "other").with_suffix(".pub").read_text().split()[:2]
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {kind} {blob}\n")
    configure(ssh_config, "StrictHostKeyChecking no")
    await refused(transport, sshd.environment(), "StrictHostKeyChecking no")


@pytest.mark.parametrize("option", ["CheckHostIP yes", "CheckHostIP no"])
async def test_a_key_that_the_address_contradicts_is_refused_with_check_host_ip(tmp_path: Path, option: str) -> None:
    """Of loopback ssh checks no address, and so this looks at the decision alone."""
    shown, other = (_host_key(make_key(tmp_path / name)) for name in ("shown", "other"))
    known, config = tmp_path / "known", tmp_path / "config"
    append(known, "gpu1.example.org", shown)
    append(known, "192.0.2.7", other)
    config.write_text(f"UserKnownHostsFile {known}\nGlobalKnownHostsFile /dev/null\n{option}\n")
    environment = Environment(name="gpu1", host="gpu1.example.org")
    hop = Hop(environment, SshConfig(config).resolve(HostQuery("gpu1.example.org")))
    threads = Threads()
    check = HostKeyCheck(threads)
    assert check.vouched_for(hop, shown, address="192.0.2.8")
    if option.endswith("no"):
        assert check.vouched_for(hop, shown, address="192.0.2.7")
    else:
        with pytest.raises(HostKeyError, match="CheckHostIP"):
            check.vouched_for(hop, shown, address="192.0.2.7")
    threads.close()


def _host_key(path: Path) -> HostKey:
    kind, blob = path.with_suffix(".pub").read_text().split()[:2]
    return HostKey(kind, base64.b64decode(blob), 256)
