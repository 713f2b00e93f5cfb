"""What a framework writes for one node: files and commands, with named holes for what only the start can know."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
)


class Hole(str, Enum):
    """What is known only at the start. Written into a plan as `${NAME}`."""

    JOB_ID = "JOB_ID"
    ATTEMPT = "ATTEMPT"
    MASTER_PORT = "MASTER_PORT"
    INTERFACE = "INTERFACE"
    GPU_IDS = "GPU_IDS"
    """Comma-separated, as CUDA_VISIBLE_DEVICES takes them."""
    DIRECTORY = "DIRECTORY"
    """The attempt's directory on the host."""
    PAYLOAD = "PAYLOAD"
    """Directory of dtagent's payload scripts on the host."""
    PYTHON = "PYTHON"
    """The job's interpreter; with a container, the one inside."""
    USER_IDS = "USER_IDS"
    """Numbers of the agent's user and group, `1000:1000`."""

    def __str__(self) -> str:
        return "${" + self.value + "}"


_HOLE = re.compile(r"\$\{(" + "|".join(hole.value for hole in Hole) + r"|NODE[0-9]+_(?:PORT|ADDRESS)|GPU[0-9]+_ID)\}")


def is_hole(text: str) -> bool:
    """Whether a text is one that is filled in at the start."""
    return _HOLE.fullmatch(text) is not None


def port_hole(node_rank: int) -> str:
    """Return the name of the hole for the port that a node has reserved, where the framework has every node do so."""
    return f"NODE{node_rank}_PORT"


def address_hole(node_rank: int) -> str:
    """Return the name of the hole for the address of a node; plans hold the address itself, but for rendered ones."""
    return f"NODE{node_rank}_ADDRESS"


def gpu_hole(index: int) -> str:
    """Return the name of the hole for one of the ids in `GPU_IDS`, counted from 0."""
    return f"GPU{index}_ID"


IN_FULL = {"in_full": True}
"""The context in which a plan is written as it reads, each node with all that it has."""


def is_in_full(info: SerializationInfo) -> bool:
    """Whether a plan is written in full; else it is folded where it becomes JSON: see `dtagent.protocol.alike`."""
    return info.mode != "json" or bool(info.context and info.context.get("in_full"))


class PlannedFile(BaseModel):
    """A generated file of a node's bundle."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    """Relative to the attempt's directory."""
    own: str = Field(default="", alias="text")
    """What it begins with: all of it, or the part that each node has of its own."""
    shared: str = ""
    """What it ends with: the same on all nodes, and in memory once."""
    executable: bool = False
    """Whether it may be run."""

    @property
    def text(self) -> str:
        """Content. Holes in it stand inside JSON-style quoted strings or are numbers."""
        return self.own + self.shared

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        own = document.pop("own")
        if is_in_full(info):
            own += document.pop("shared")
        return {"path": document.pop("path"), "text": own, **document}


class PlannedProcess(BaseModel):
    """A command on a node. Strings may hold holes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """`launcher`, or the rank."""
    argv: tuple[str, ...]
    """Command and arguments."""
    env: dict[str, str]
    """Environment added."""
    cwd: str
    """Working directory."""
    rank: int | None = None
    """Global rank where the process is one."""
    is_service: bool = False
    """Whether it only serves the others, and is ended once all that are none have ended well."""
    warm_start: bool = False
    """Whether it is forked from a process that keeps torch imported, where the host has one."""
    engine_words: int = 0
    """How many words of `argv` start the container that the rest is run in."""
    removal: tuple[str, ...] = ()
    """Command that removes what a daemon may go on running although the process is gone; may hold holes."""
    starts_ranks: bool = False
    """Whether it starts the ranks itself, in its own time and by its own launcher."""
    python_path: str = ""
    """Where the Pythons of the process look for modules after those of PYTHONPATH; may hold holes."""


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the holes in a string, once: what a value brings along is not looked at. A hole without one stays."""
    return _HOLE.sub(lambda match: values.get(match[1], match[0]), text)


def holes_in(text: str) -> set[str]:
    """Return the names of the holes of a string."""
    return {match[1] for match in _HOLE.finditer(text)}


_ANY_HOLE = re.compile(r"\$\{[A-Z0-9_]+\}")


def command_lines(argv: Sequence[str]) -> list[str]:
    """Return a command as a shell takes it, in lines that each begin with an option or with what is run.

    Holes stay as they are, which quoting would hide.
    """
    return [" ".join(line) for line in _option_lines(argv)]


def _option_lines(argv: Sequence[str]) -> Iterator[list[str]]:
    line: list[str] = []
    for word in argv:
        is_whole = bool(line) and line[-1].startswith("--") and "=" in line[-1]
        if line and (word.startswith("--") or is_whole):
            yield line
            line = []
        line.append(word if _is_plain(_ANY_HOLE.sub("", word)) else shlex.quote(word))
    if line:
        yield line


def _is_plain(word: str) -> bool:
    return not word or shlex.quote(word) == word
