"""Envelopes that only the nodes of a job can make."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64decode, b64encode


class Seal:
    """Makes envelopes, and opens those that were made with the same key for the same rendezvous and name."""

    def __init__(self, key: bytes, run_id: str) -> None:
        self._key = key
        self._run_id = run_id

    def close(self, name: str, content: bytes) -> bytes:
        """Return content in an envelope."""
        text = b64encode(content)
        return self._code(name, text) + b"." + text

    def open(self, name: str, envelope: bytes) -> bytes | None:
        """Return what is in an envelope; `None` where it is not one of ours for that name."""
        code, _, text = envelope.partition(b".")
        return b64decode(text) if hmac.compare_digest(code, self._code(name, text)) else None

    def _code(self, name: str, text: bytes) -> bytes:
        place = json.dumps([self._run_id, name]).encode()
        return hmac.new(self._key, place + b"\n" + text, hashlib.sha256).hexdigest().encode()
