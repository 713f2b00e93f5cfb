"""Says whether an authority vouches for a host by the certificate that it shows, as ssh takes it. Pure."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence

import paramiko
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    load_ssh_public_identity,
)

from dttui.i18n import _
from dttui.transport.ssh.known_hosts import HostKey

_SERIAL_AND_TYPE_BYTES = 8 + 4
_VALIDITY_BYTES = 8 + 8


def authority_of(key: HostKey) -> bytes:
    """Return the public key of who has signed a key's certificate; nothing where that cannot be read."""
    certificate = _read(key)
    if certificate is None:
        return b""
    line = certificate.signature_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return base64.b64decode(line.split()[1])


def fault(key: HostKey, name: str, signatures: Sequence[str]) -> str:
    """Return why a certificate does not vouch for a host, whoever signed it; `""` where it does.

    Args:
        key: with the certificate.
        name: of the host, as it was asked for and without the port.
        signatures: algorithms by which it may be signed.
    """
    certificate = _read(key)
    if certificate is None:
        return _("it cannot be read")
    if certificate.type is not SSHCertificateType.HOST:
        return _("it is not a host's")
    if certificate.critical_options:
        return _("it has critical options that are not known")
    if not certificate.valid_after <= time.time() < certificate.valid_before:
        return _("it is not valid at this time")
    if name.encode() not in certificate.valid_principals:  # ssh knows no patterns there.
        return _("it is not for {name}").format(name=name)
    try:
        certificate.verify_cert_signature()
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return _("its signature is wrong")
    return "" if _signature_algorithm(key) in signatures else _("CASignatureAlgorithms does not allow its signature")


def _read(key: HostKey) -> SSHCertificate | None:
    kind = paramiko.Message(key.certificate).get_binary()
    try:
        found = load_ssh_public_identity(kind + b" " + base64.b64encode(key.certificate))
    except (UnsupportedAlgorithm, ValueError):
        return None
    return found if isinstance(found, SSHCertificate) else None


def _signature_algorithm(key: HostKey) -> str:
    """What PROTOCOL.certkeys lists comes before it."""
    fields = paramiko.Message(key.certificate)
    of_key = ("public numbers",) * (1 if key.type == "ssh-ed25519" else 2)
    for _field in ("type", "nonce", *of_key):
        fields.get_binary()
    fields.get_bytes(_SERIAL_AND_TYPE_BYTES)
    for _field in ("id", "principals"):
        fields.get_binary()
    fields.get_bytes(_VALIDITY_BYTES)
    for _field in ("critical options", "extensions", "reserved", "authority"):
        fields.get_binary()
    return paramiko.Message(fields.get_binary()).get_binary().decode("ascii", "replace")
