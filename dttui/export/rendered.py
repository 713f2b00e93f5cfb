"""What a target makes: files, copies and links, by their path in the directory. Nothing is written here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True)
class Rendered:
    """One file of a rendered directory: text, a copy, or a link."""

    path: str
    """Relative, with slashes."""
    text: str = ""
    """Content, where it is neither a copy nor a link."""
    source: Path | None = None
    """What it is a copy of."""
    opened: Callable[[], BinaryIO] | None = None
    """Opens what it is a copy of, where that is no file of dttui's own."""
    link: str | None = None
    """Where it leads to, relative to its own directory."""
    executable: bool = False
    """Whether it may be run."""
