"""Compiles the message catalogues in the checkout, as building the package does."""

from __future__ import annotations

from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

LOCALE = Path(__file__).parents[2] / "dttui" / "locale"


def compile_catalogues() -> None:
    """Write each .mo that is missing or older than its .po."""
    for source in LOCALE.glob("*/LC_MESSAGES/*.po"):
        target = source.with_suffix(".mo")
        if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
            continue
        with source.open("rb") as stream:
            catalogue = read_po(stream)
        with target.open("wb") as stream:
            write_mo(stream, catalogue)
