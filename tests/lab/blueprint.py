"""What a host is built from: the document that the lab hands to the rack, and the rack to the host's PID 1."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """A file that the host is born with."""

    path: str
    """Absolute path in the host."""
    text: str
    """Content."""
    mode: int = 0o644
    """Permission bits."""


@dataclass(frozen=True)
class Tree:
    """A directory of the machine that a host sees read-only."""

    source: str
    """Directory of the machine."""
    target: str
    """Where the host sees it."""
    hidden: tuple[str, ...] = ()
    """Paths below it, relative, that the host does not see."""
    links: tuple[tuple[str, str], ...] = ()
    """Paths below it, relative, that are symbolic links in the host, with what they point to."""


@dataclass(frozen=True)
class Masks:
    """Paths of the machine that a host does not see."""

    emptied: tuple[str, ...] = ()
    """Directories that are there, and empty."""
    hidden: tuple[str, ...] = ()
    """Files and directories that are not there."""


@dataclass(frozen=True)
class Cable:
    """How a host is connected to the switch."""

    port: str
    """The interface at the switch's end."""
    address: str
    """IPv4 address of the host's end, with its prefix length."""
    mac: str
    """Hardware address of the host's end."""
    neighbours: tuple[tuple[str, str], ...]
    """Address and hardware address of every other machine, known for good: a cut link fails no address resolution."""


@dataclass(frozen=True)
class Blueprint:
    """Everything that one boot of a host needs to know."""

    name: str
    """Host name."""
    boot_id: str
    """Identity of this boot."""
    disk: str
    """Directory, on a tmpfs of the host's own, that keeps its files between boots."""
    cable: Cable
    """Its link."""
    masks: Masks
    """What of the machine it does not see."""
    files: tuple[File, ...]
    """What its first boot writes."""
    trees: tuple[Tree, ...]
    """What of the machine it sees read-only."""

    def to_json(self) -> str:
        """Return the document as one line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Blueprint:
        """Read the document back."""
        raw = json.loads(text)
        raw["cable"] = Cable(**raw["cable"])
        raw["masks"] = Masks(**raw["masks"])
        raw["files"] = tuple(File(**item) for item in raw["files"])
        raw["trees"] = tuple(Tree(**item) for item in raw["trees"])
        return cls(**raw)
