"""Reads and extends known_hosts files, as sshd(8) describes them. Knows nothing of connections or of paramiko."""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import hmac
import os
import stat
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dttui.files import make_private
from dttui.i18n import _
from dttui.sanitize import clean

DEFAULT_PORT = 22
MAX_FILE_BYTES = 64 * 1024 * 1024
AUTHORITY = "@cert-authority"


@dataclass(frozen=True)
class HostKey:
    """The public key of a host."""

    type: str
    """As in the protocol: `ssh-ed25519`, `ssh-rsa`, `ecdsa-sha2-nistp256`, …"""
    blob: bytes
    bits: int = field(default=0, compare=False)
    """Length, where the key was shown by a host."""
    certificate: bytes = field(default=b"", compare=False)
    """What the host showed the key in, where it was a certificate."""

    @cached_property
    def fingerprint(self) -> str:
        """`SHA256:…`, as `ssh-keygen -l` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")
        return f"SHA256:{digest}"

    @property
    def algorithm(self) -> str:
        """What people call the type: `ED25519`, `RSA`, `ECDSA`."""
        return self.type.removeprefix("ssh-").partition("-")[0].upper()


@dataclass(frozen=True)
class KnownKey:
    """One line of a known_hosts file."""

    key: HostKey
    path: Path
    line: int
    revoked: bool = False

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class _PatternEntry:
    patterns: tuple[str, ...]
    known: KnownKey


@dataclass(frozen=True)
class _HashedEntry:
    salt: bytes
    digest: bytes
    known: KnownKey


@dataclass
class KnownHostsFile:
    """One file, parsed and indexed once: plain names in a dictionary, hashed names and patterns in lists."""

    plain: dict[str, list[KnownKey]] = field(default_factory=dict)
    hashed: list[_HashedEntry] = field(default_factory=list)
    patterns: list[_PatternEntry] = field(default_factory=list)
    authorities: list[tuple[str, KnownKey]] = field(default_factory=list)
    """Names that an authority vouches for, and its key."""
    warnings: list[str] = field(default_factory=list)
    """One a line that could not be read, with its place."""

    @classmethod
    def parse(cls, data: bytes, path: Path) -> KnownHostsFile:
        """Read the bytes of a file. Never raises: a line that cannot be used is skipped with a warning."""
        result = cls()
        for number, raw in enumerate(data.split(b"\n"), start=1):
            fields = raw.decode("utf-8", "replace").split()
            if not fields or fields[0].startswith("#"):
                continue
            try:
                result._add(fields, path, number)
            except (ValueError, binascii.Error) as error:
                result.warnings.append(f"{path}:{number}: {error}")
        return result

    def find(self, name: str) -> list[KnownKey]:
        """Return the keys known for a name, `host` or `[host]:port`. Only a hash tells cases apart, as with ssh."""
        lower = name.lower()
        found = list(self.plain.get(lower, ()))
        found += [entry.known for entry in self.hashed if _hash(entry.salt, name) == entry.digest]
        found += [entry.known for entry in self.patterns if matches(entry.patterns, lower)]
        return found

    def find_authorities(self, name: str) -> list[KnownKey]:
        """Return the keys of the authorities that may vouch for a name."""
        return [known for hosts, known in self.authorities if _speak_for(hosts, name)]

    def _add(self, fields: list[str], path: Path, number: int) -> None:
        marker = fields.pop(0) if fields[0].startswith("@") else ""
        if marker not in {"", "@revoked", AUTHORITY}:
            raise ValueError(_("unknown marker {marker}").format(marker=clean(marker[:40])))
        if len(fields) < 3:
            raise ValueError(_("expected HOSTS TYPE KEY"))
        hosts, key_type, text = fields[:3]
        known = KnownKey(HostKey(key_type, _key_blob(key_type, text)), path, number, marker == "@revoked")
        if marker == AUTHORITY:
            self.authorities.append((hosts, known))
            return
        if hosts.startswith("|"):
            self.hashed.append(_hashed_entry(hosts, known))
            return
        patterns = tuple(pattern for pattern in hosts.lower().split(",") if pattern)
        if any(char in pattern for pattern in patterns for char in "*?!"):
            self.patterns.append(_PatternEntry(patterns, known))
        else:
            for pattern in patterns:
                self.plain.setdefault(pattern, []).append(known)


class KnownHosts:
    """All files that speak for one host, in order."""

    def __init__(self, files: Iterable[KnownHostsFile]) -> None:
        self._files = list(files)

    def find(self, name: str) -> list[KnownKey]:
        """Return every entry for `name`, revoked ones too."""
        return [known for file in self._files for known in file.find(name)]

    def find_authorities(self, name: str) -> list[KnownKey]:
        """Return the keys of the authorities that may vouch for a name."""
        return [known for file in self._files for known in file.find_authorities(name)]


class KnownHostsCache:
    """Parsed files, read again when they change. Safe to use from several threads."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[tuple[int, int, int] | None, KnownHostsFile]] = {}
        self._lock = threading.Lock()

    @property
    def warnings(self) -> list[str]:
        """Files and lines read so far that could not be used."""
        with self._lock:
            return [warning for _stamp, file in self._files.values() for warning in file.warnings]

    def load(self, paths: Sequence[Path]) -> KnownHosts:
        """Return what the files say now. A missing file says nothing, one that cannot be read a warning."""
        return KnownHosts([self._load(path) for path in dict.fromkeys(paths)])

    def _load(self, path: Path) -> KnownHostsFile:
        stamp: tuple[int, int, int] | None = None
        try:
            status = path.stat()
            stamp = (status.st_ctime_ns, status.st_size, status.st_ino)
            with self._lock:
                cached = self._files.get(path)
            # A change of its permissions, and a copy that keeps its time, are seen too.
            if cached and cached[0] == stamp:
                return cached[1]
            parsed = _read(path, status)
        except (FileNotFoundError, NotADirectoryError):
            parsed = KnownHostsFile()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            stamp = None  # It is tried again: what could not be read may be, without having changed.
            parsed = KnownHostsFile(warnings=[f"{path}: {reason}"])
        with self._lock:
            self._files[path] = (stamp, parsed)
        return parsed


def entry_name(host: str, port: int) -> str:
    """Return the name under which a known_hosts file lists a host: `host`, or `[host]:port` off the usual port."""
    return host.lower() if port == DEFAULT_PORT else f"[{host.lower()}]:{port}"


def append(path: Path, name: str, key: HostKey) -> None:
    """Add a line to the file, unless it is there; creates file and directory (0600, 0700).

    Writers in other processes wait for each other, and the line goes out in one write.

    Raises:
        OSError: The file cannot be written.
    """
    make_private(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        data = file.read()
        if any(known.key == key and not known.revoked for known in KnownHostsFile.parse(data, path).find(name)):
            return
        line = f"{name} {key.type} {base64.b64encode(key.blob).decode()}\n".encode()
        file.write(line if not data or data.endswith(b"\n") else b"\n" + line)
        os.fsync(file.fileno())


def _read(path: Path, status: os.stat_result) -> KnownHostsFile:
    if not stat.S_ISREG(status.st_mode):
        return KnownHostsFile()  # /dev/null is how people say: none.
    if status.st_size > MAX_FILE_BYTES:
        raise ValueError(_("{size} bytes; not read").format(size=status.st_size))
    return KnownHostsFile.parse(path.read_bytes(), path)


def _key_blob(key_type: str, text: str) -> bytes:
    blob = base64.b64decode(text, validate=True)
    size = int.from_bytes(blob[:4], "big")
    if len(blob) < 5 or blob[4 : 4 + size] != key_type.encode():
        raise ValueError(_("the key is not of type {type}").format(type=clean(key_type[:40])))
    return blob


def _hashed_entry(hosts: str, known: KnownKey) -> _HashedEntry:
    parts = hosts.split("|")
    if len(parts) != 4 or parts[1] != "1":
        raise ValueError(_("unknown kind of hashed name"))
    return _HashedEntry(base64.b64decode(parts[2], validate=True), base64.b64decode(parts[3], validate=True), known)


def _speak_for(hosts: str, name: str) -> bool:
    if not hosts.startswith("|"):
        return matches(tuple(hosts.lower().split(",")), name.lower())
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in hosts.split("|")[2:])
    except (ValueError, binascii.Error):
        return False
    return _hash(salt, name) == digest


def _hash(salt: bytes, name: str) -> bytes:
    return hmac.digest(salt, name.encode(), "sha1")


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether a line's patterns mean a name; a negated one that matches overrules all others."""
    if any(pattern.startswith("!") and _glob(pattern[1:], name) for pattern in patterns):
        return False
    return any(not pattern.startswith("!") and _glob(pattern, name) for pattern in patterns)


def _glob(pattern: str, name: str) -> bool:
    """`*` and `?` only; brackets are literal here, unlike in a shell. Linear in memory, never exponential in time."""
    at, star, mark = 0, -1, 0
    index = 0
    while index < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, mark = at, index
            at += 1
        elif at < len(pattern) and pattern[at] in {"?", name[index]}:
            at += 1
            index += 1
        elif star >= 0:
            mark += 1
            at, index = star + 1, mark
        else:
            return False
    return not pattern[at:].strip("*")
