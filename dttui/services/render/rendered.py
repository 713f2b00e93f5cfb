"""What a target makes: files, copies and links, by their path in the directory. Nothing is written here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Rendered:
    """One file of a rendered directory: text, a copy of `source`, or a link."""

    path: str
    """Relative, with slashes."""
    text: str = ""
    """Content, where it is neither a copy nor a link."""
    source: Path | None = None
    """What it is a copy of."""
    link: str | None = None
    """Where it leads to, relative to its own directory."""
    executable: bool = False
    """Whether it may be run."""
