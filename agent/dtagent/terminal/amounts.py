"""How amounts are written for a person: sizes, spans of time."""

from __future__ import annotations


def size(mib: int) -> str:
    """Return MiB in the unit that keeps it short: `512 MiB`, `3.5 GiB`, `504 GiB`, `7.0 TiB`."""
    if mib < 1024:
        return f"{mib} MiB"
    value, unit = (mib / 1024, "GiB") if mib < 1024**2 else (mib / 1024**2, "TiB")
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def span(seconds: float) -> str:
    """Return a time in its two largest units: `3d 4h`, `4h 5m`, `5m`."""
    minutes = int(max(0.0, seconds)) // 60
    days, hours = minutes // 1440, minutes // 60 % 24
    return f"{days}d {hours}h" if days else f"{hours}h {minutes % 60}m" if hours else f"{minutes}m"
