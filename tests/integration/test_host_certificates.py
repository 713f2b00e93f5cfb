"""A host that is known by its authority alone: what its certificate says decides, and why not is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from dttui.errors import HostKeyError
from dttui.transport.ssh.transport import SshTransport
from tests.integration.ssh_fixtures import NOBODY, TIMEOUT_S
from tests.integration.sshd import make_key, run, running_sshd

pytestmark = pytest.mark.sshd

FOR_IT = ("-n", "gpu9,127.0.0.1")


@pytest.mark.parametrize(("kind", "authority_kind"), [("ed25519", "ed25519"), ("ecdsa", "rsa"), ("rsa", "ecdsa")])
async def test_a_host_with_a_certificate_of_a_trusted_authority_needs_no_line_of_its_own(
    transport: SshTransport, tmp_path: Path, kind: str, authority_kind: str
) -> None:
    assert await said_of(transport, tmp_path, kind, authority_kind, FOR_IT) == ""


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ((*FOR_IT, "-V", "20200101:20210101"), "it is not valid at this time"),
        (("-n", "gpu9,127.0.0.2"), "it is not for 127.0.0.1"),
        (("-n", "127.0.0.*"), "it is not for 127.0.0.1"),
        (("-n", "!gpu9,*"), "it is not for 127.0.0.1"),
        ((), "it is not for 127.0.0.1"),
        ((*FOR_IT, "-O", "critical:none@knows=1"), "it has critical options that are not known"),
        ((*FOR_IT, "-t", "ssh-rsa"), "CASignatureAlgorithms does not allow its signature"),
    ],
)
async def test_a_certificate_that_ssh_would_not_take_is_not_taken_and_the_reason_is_told(
    transport: SshTransport, tmp_path: Path, how: tuple[str, ...], reason: str
) -> None:
    assert reason in await said_of(transport, tmp_path, "ed25519", "rsa", how)


async def test_of_an_authority_that_is_not_trusted_the_certificate_counts_for_nothing(
    transport: SshTransport, tmp_path: Path
) -> None:
    make_key(tmp_path / "other")
    said = await said_of(transport, tmp_path, "ed25519", "ed25519", FOR_IT, trusted=tmp_path / "other.pub")
    assert "it is not signed by that authority" in said


async def said_of(
    transport: SshTransport,
    place: Path,
    kind: str,
    authority_kind: str,
    how: tuple[str, ...],
    trusted: Path | None = None,
) -> str:
    """Return why a host with such a certificate is refused; `""` where it is not."""
    authority = make_key(place / "authority", authority_kind)
    host = place / "host"
    host.mkdir()
    make_key(host / f"host_{kind}", kind)
    run("ssh-keygen", "-q", "-s", str(authority), "-I", "host", "-h", *how, str(host / f"host_{kind}.pub"))
    options = {"HostCertificate": str(host / f"host_{kind}-cert.pub"), "KexAlgorithms": "ecdh-sha2-nistp256"}
    with running_sshd(host, options, (kind,)) as server:
        key = (trusted or authority.with_suffix(".pub")).read_text()
        server.known_hosts.write_text(f"@cert-authority [127.0.0.1]:* {key}")
        try:
            await (await transport.connect(server.environment(), NOBODY, TIMEOUT_S)).close()
        except HostKeyError as error:
            return error.message
        return ""
