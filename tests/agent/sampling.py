"""What a client of the daemon gets of a sampler."""

from __future__ import annotations

from dtagent.protocol.telemetry import TelemetryReply, TelemetryRequest
from dtagent.telemetry.sampler import Sampler


async def follow(sampler: Sampler, request: TelemetryRequest) -> TelemetryReply:
    """Wait for what is asked for, then read it."""
    await sampler.wait(request)
    return sampler.read(request)
