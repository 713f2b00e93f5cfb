"""Private key files and their certificates: parsed and decrypted once. Knows nothing of servers or of people."""

from __future__ import annotations

import base64
import binascii
import copy
import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from paramiko.pkey import PublicBlob

from dttui.i18n import _
from dttui.sanitize import clean

MAX_KEY_BYTES = 1024 * 1024

_OPENSSH_BEGIN = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_OPENSSH_END = b"-----END OPENSSH PRIVATE KEY-----"
_OPENSSH_MAGIC = b"openssh-key-v1\0"

_PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@dataclass(frozen=True)
class Identity:
    """Something to log in with."""

    key: paramiko.PKey
    label: str
    """What to call it in a message."""


@dataclass
class KeyFile:
    """A private key file as far as it can be read without a passphrase."""

    path: Path
    public_blob: bytes | None = None
    """What an agent lists the key by, where the file tells."""
    encrypted: bool = False
    problem: str = ""
    """Why the file is of no use, if it is not."""
    _data: bytes = field(default=b"", repr=False)
    _private: _PrivateKey | None = field(default=None, repr=False)
    _usable: paramiko.PKey | None = field(default=None, repr=False)
    """The same as paramiko wants it."""

    @classmethod
    def parse(cls, path: Path, data: bytes) -> KeyFile:
        """Read the bytes of a file. Never raises: what is wrong with it is its `problem`."""
        file = cls(path, _public_blob(path, data), _data=data)
        try:
            file._private = _parse(data, None)
        except TypeError:
            file.encrypted = True
        except UnsupportedAlgorithm:
            file.problem = _("a kind of key that only an ssh-agent can use")
        except ValueError:
            file.problem = _("not a private key")
        return file

    @property
    def locked(self) -> bool:
        """Whether it still needs a passphrase."""
        return self.encrypted and self._private is None

    def unlock(self, passphrase: str) -> None:
        """Decrypt the key and keep it. Raises ValueError when the passphrase is wrong."""
        try:
            self._private = _parse(self._data, passphrase.encode())
        except UnsupportedAlgorithm as error:
            raise ValueError(str(error)) from error

    def identities(self, certificate_files: Sequence[Path] = ()) -> list[Identity]:
        """Return what to try: its certificates, from beside it or from `certificate_files`, then the key itself."""
        if self._private is None:
            return []
        plain = self._usable = self._usable or _to_paramiko(self._private)
        found = []
        for path in dict.fromkeys((Path(f"{self.path}-cert.pub"), *certificate_files)):
            certificate = _certificate(path)
            if certificate and _certifies(certificate, plain):
                key = copy.copy(plain)
                key.public_blob = certificate
                found.append(Identity(key, str(path)))
        return [*found, Identity(plain, str(self.path))]


class KeyRing:
    """Key files by path, read again when they change. Blocking; safe to use from several threads."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[tuple[int, int], KeyFile]] = {}
        self._lock = threading.Lock()

    def load(self, path: Path) -> KeyFile | None:
        """Return the key file, `None` where there is none."""
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            with self._lock:
                cached = self._files.get(path)
            if cached and cached[0] == stamp:
                return cached[1]
            if status.st_size > MAX_KEY_BYTES:
                return KeyFile(path, problem=_("not a private key"))
            loaded = KeyFile.parse(path, path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            return KeyFile(path, problem=getattr(error, "strerror", None) or clean(str(error)))
        with self._lock:
            # Another thread may have been quicker: all must share one file, or each would ask for its passphrase.
            cached = self._files.get(path)
            if cached and cached[0] == stamp:
                return cached[1]
            self._files[path] = (stamp, loaded)
        return loaded


def _parse(data: bytes, passphrase: bytes | None) -> _PrivateKey:
    """Raises TypeError without a passphrase where one is needed, ValueError when it is wrong or this is no key."""
    load = load_ssh_private_key if _OPENSSH_BEGIN in data else load_pem_private_key
    key = load(data, passphrase)
    if isinstance(key, (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey)):
        return key
    raise UnsupportedAlgorithm(type(key).__name__)


def _to_paramiko(key: _PrivateKey) -> paramiko.PKey:
    text = io.StringIO(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode())
    if isinstance(key, rsa.RSAPrivateKey):
        return paramiko.RSAKey.from_private_key(text)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return paramiko.ECDSAKey.from_private_key(text)
    return paramiko.Ed25519Key.from_private_key(text)


def _public_blob(path: Path, data: bytes) -> bytes | None:
    """OpenSSH's own format says it in clear, even when encrypted; else the `.pub` beside it does."""
    try:
        body = data.partition(_OPENSSH_BEGIN)[2].partition(_OPENSSH_END)[0]
        if body:
            message = paramiko.Message(base64.b64decode(body).removeprefix(_OPENSSH_MAGIC))
            for _header in ("cipher", "key derivation", "its options"):
                message.get_binary()
            return message.get_binary() if message.get_int() == 1 else None
        fields = Path(f"{path}.pub").read_bytes().split()
        return base64.b64decode(fields[1]) if len(fields) > 1 else None
    except (OSError, ValueError, binascii.Error):
        return None


def _certificate(path: Path) -> PublicBlob | None:
    try:
        return PublicBlob.from_file(path)
    except (OSError, ValueError, binascii.Error, paramiko.SSHException):
        return None


def _certifies(certificate: PublicBlob, key: paramiko.PKey) -> bool:
    """A certificate repeats the fields of the key it is for, after its type and a nonce."""
    plain, certified = paramiko.Message(key.asbytes()), paramiko.Message(certificate.key_blob)
    plain.get_binary()
    certified.get_binary()
    certified.get_binary()
    return certified.get_remainder().startswith(plain.get_remainder())
