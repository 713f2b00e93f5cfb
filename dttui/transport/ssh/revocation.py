"""What RevokedHostKeys and RequiredRSASize rule out, whoever vouches for it. Blocking; opens no connection."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_identity

from dttui.errors import HostKeyError
from dttui.i18n import _
from dttui.sanitize import shortened
from dttui.transport.ssh.algorithms import CERTIFICATE
from dttui.transport.ssh.certificates import authority_of
from dttui.transport.ssh.known_hosts import MAX_FILE_BYTES, HostKey
from dttui.variables import for_a_process

if TYPE_CHECKING:
    from dttui.transport.ssh.hop import Hop

KRL_MAGIC = b"SSHKRL\n\0"
TIMEOUT_S = 10.0
MAX_REASON_CHARS = 200
_ONLY_SSH_KNOWS = (b"sk-", b"ssh-dss")


def check(hop: Hop, key: HostKey) -> None:
    """Return if neither option rules the key out.

    Raises:
        HostKeyError: One does, or its file cannot be read, which with ssh is the same.
    """
    target = hop.target
    if key.type == "ssh-rsa" and key.bits < target.required_rsa_bits:
        message = _("the RSA key of {host} has {bits} bits, and RequiredRSASize is {required}")
        told = message.format(host=hop.title, bits=key.bits, required=target.required_rsa_bits)
        raise HostKeyError(hop.environment.name, told, _("Give the host a longer key."), fingerprint=key.fingerprint)
    path = target.revoked_host_keys
    if path is None:
        return
    try:
        is_revoked = _is_revoked(path, key)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = shortened(getattr(error, "strerror", None) or str(error), MAX_REASON_CHARS)
        message = _("RevokedHostKeys {path} cannot be read, and without it no key is taken: {reason}")
        raise HostKeyError(
            hop.environment.name,
            message.format(path=path, reason=reason),
            _("Correct `RevokedHostKeys` in ~/.ssh/config."),
            fingerprint=key.fingerprint,
        ) from error
    if is_revoked:
        message = _("the key of {host} is revoked by {place}: {algorithm} {fingerprint}")
        place = f"RevokedHostKeys {path}"
        raise HostKeyError(
            hop.environment.name,
            message.format(host=hop.title, place=place, algorithm=key.algorithm, fingerprint=key.fingerprint),
            _("Do not connect. Ask the host's administrator for a new host key."),
            fingerprint=key.fingerprint,
        )


def _is_revoked(path: Path, key: HostKey) -> bool:
    """Raises OSError, ValueError and SubprocessError."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(_("{size} bytes; not read").format(size=len(data)))
    if data.startswith(KRL_MAGIC):
        return _is_in_krl(path, key)
    revocable = (key.blob, authority_of(key)) if key.certificate else (key.blob,)
    for number, line in enumerate(data.split(b"\n"), start=1):
        words = line.split()
        if not words or words[0].startswith(b"#"):
            continue
        try:
            load_ssh_public_identity(b" ".join(words[:2]))
            blob = base64.b64decode(words[1], validate=True)
        except (UnsupportedAlgorithm, ValueError, IndexError) as error:
            if isinstance(error, UnsupportedAlgorithm) and words[0].startswith(_ONLY_SSH_KNOWS):
                continue  # No host shows such a key to dttui.
            # As with ssh: who meant to revoke a key there would not know that it is not.
            raise ValueError(_("line {number} is no key").format(number=number)) from error
        if blob in revocable:
            return True
    return False


def _is_in_krl(path: Path, key: HostKey) -> bool:
    """Ask ssh-keygen, which knows the format: 1 is revoked, and whatever else is not 0 is no answer."""
    tool = shutil.which("ssh-keygen")
    if tool is None:
        raise ValueError(_("it is a KRL, and there is no ssh-keygen to read it"))
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as shown:
        # Of a certificate it knows the serial number, the id and the authority too.
        shown.write(f"{key.type}{CERTIFICATE if key.certificate else ''} ")
        shown.write(f"{base64.b64encode(key.certificate or key.blob).decode()}\n")
        shown.flush()
        done = subprocess.run(
            [tool, "-Q", "-f", str(path), shown.name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=for_a_process(),
            check=False,
        )
    if done.returncode == 0:
        return False
    if done.returncode == 1 and "REVOKED" in done.stdout:
        return True
    raise ValueError(done.stderr.strip() or str(done.returncode))
