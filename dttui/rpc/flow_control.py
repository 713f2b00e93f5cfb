"""How much to ask an agent for at once: what passes the link in a moment, so that a heartbeat never waits long."""

from __future__ import annotations

from dtagent.protocol.rpc import MAX_CHUNK_BYTES

GRANT_S = 0.25
"""How long one grant may keep the link busy."""
FIRST_GRANT_BYTES = 64 * 1024
MIN_GRANT_BYTES = 4 * 1024
SHORT_BYTES = 2 * 1024
"""Replies up to this tell nothing of the link's speed."""
BASE64 = 4 / 3
"""Bytes on the wire for each that was asked for."""


class FlowControl:
    """The speed of one link, as the replies on it show it."""

    def __init__(self) -> None:
        self.grant_bytes = FIRST_GRANT_BYTES
        """How many bytes to ask for next."""

    def note(self, size: int, seconds: float) -> None:
        """Learn from a reply of so many bytes on the wire: the time from its first byte to its last."""
        if size <= SHORT_BYTES:
            return
        fitting = size / BASE64 * GRANT_S / max(seconds, 1e-6)
        # Down at once, since others wait behind it, and up in steps, since a buffer on the way may flatter.
        self.grant_bytes = int(min(max(fitting, MIN_GRANT_BYTES), 2 * self.grant_bytes, MAX_CHUNK_BYTES))
