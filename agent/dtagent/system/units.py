"""Units that the kernel and the driver count in."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
