"""SSH keys of the lab: made afresh for each, by ssh-keygen."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from tests.lab.commands import call


@dataclass(frozen=True)
class KeyPair:
    """An ed25519 key pair."""

    path: Path
    """The private key's file."""
    public_line: str
    """`ssh-ed25519 AAAA…`, without a comment."""

    @property
    def fingerprint(self) -> str:
        """What ssh shows for the key: `SHA256:…`."""
        digest = hashlib.sha256(base64.b64decode(self.public_line.split()[1])).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def make_key(path: Path) -> KeyPair:
    """Make a key pair without a passphrase at `path` and `path.pub`."""
    call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)])
    return KeyPair(path, path.with_name(path.name + ".pub").read_text().strip())
