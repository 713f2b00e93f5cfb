"""What a shell knows at one point of a script: variables, arguments, directory, functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dttui.spec.dialects.shell.open_parts import START
from dttui.spec.yaml_source import Mark

if TYPE_CHECKING:
    from tree_sitter import Node

Array = dict[str, str]
"""Values by index or key, as they were set."""
_INDEX = re.compile("[0-9]{1,18}")


@dataclass
class ShellState:
    """A point of a script."""

    script: str = ""
    """`$0`."""
    positional: list[str] = field(default_factory=list)
    """`$1` and on."""
    variables: dict[str, str | Array] = field(default_factory=dict)
    """Those that the script has set."""
    exported: set[str] = field(default_factory=set)
    """Names of those that commands get."""
    exports_all: bool = False
    """Whether every variable is exported, as after `set -a`."""
    directory: str = START
    """Where it is."""
    left: list[str] = field(default_factory=list)
    """Directories that `popd` goes back to, the next one last."""
    marks: dict[str, Mark] = field(default_factory=dict)
    """Where each variable was set last."""
    functions: dict[str, Node] = field(default_factory=dict)
    """Bodies of functions by name."""
    locals: list[dict[str, str | Array | None]] = field(default_factory=list)
    """What variables were before each function that is in progress made them its own; `None` for not set."""
    is_inside: bool = False
    """Whether the arguments are those of a function, so that one that is not there is empty."""

    def forked(self) -> ShellState:
        """Return a state of its own that a subshell begins with."""
        return replace(
            self,
            positional=list(self.positional),
            variables={name: dict(v) if isinstance(v, dict) else v for name, v in self.variables.items()},
            exported=set(self.exported),
            left=list(self.left),
            marks=dict(self.marks),
            functions=dict(self.functions),
            locals=[dict(kept) for kept in self.locals],
        )

    def keep_for_later(self, name: str) -> None:
        """Keep what a variable is until the function ends that makes it its own."""
        self.locals[-1].setdefault(name, self.variables.get(name))

    def value(self, name: str, index: str | None = None) -> str | None:
        """Return a variable's value, of an array the item at an index; `None` where it is not set."""
        value = self.variables.get(name)
        if isinstance(value, dict):
            if index is not None and index.startswith("-") and index[1:].isdecimal():
                items = list(_ordered(value).values())
                at = int(index)
                return items[at] if -len(items) <= at else None
            return value.get(index or "0")
        return value if index in (None, "0", "@", "*") else None

    def items(self, name: str) -> list[str] | None:
        """Return all items of an array; of a plain variable, itself; `None` where it is not set."""
        value = self.variables.get(name)
        if value is None:
            return None
        return list(_ordered(value).values()) if isinstance(value, dict) else [value]

    def next_index(self, name: str) -> int:
        """Return the index of the first item that `+=` adds to an array."""
        return next_index(self.indices(name))

    def indices(self, name: str) -> list[str]:
        """Return the indices or keys of an array; none where it is not set."""
        value = self.variables.get(name)
        return list(_ordered(value)) if isinstance(value, dict) else ["0"] * (value is not None)

    def set(self, name: str, value: str | Array, index: str | None = None) -> None:
        """Set a variable, or one item of an array."""
        if self.exports_all:
            self.exported.add(name)
        if index is None or isinstance(value, dict):
            self.variables[name] = value
            return
        array = self.variables.get(name)
        if not isinstance(array, dict):
            array = {} if array is None else {"0": array}
            self.variables[name] = array
        array[index] = value

    def append(self, name: str, value: str | Array, index: str | None = None) -> None:
        """Add to a variable what `+=` adds: text to text, items to an array."""
        there = self.variables.get(name)
        if isinstance(value, dict):
            first = {} if there is None else there if isinstance(there, dict) else {"0": there}
            self.variables[name] = {**first, **value}
        elif isinstance(there, dict):
            self.set(name, (self.value(name, index) or "") + value, index or "0")
        else:
            self.variables[name] = (there or "") + value

    def is_exported(self, name: str) -> bool:
        """Whether commands get a variable."""
        return name in self.exported


def next_index(indices: Iterable[str]) -> int:
    """Return the index after the highest of an array."""
    return max((int(index) for index in indices if _INDEX.fullmatch(index)), default=-1) + 1


def _ordered(array: Array) -> Array:
    """Return an array in the order of its indices; one with keys as it is."""
    if not all(map(_INDEX.fullmatch, array)):
        return array
    numbers = list(map(int, array))
    return array if numbers == sorted(numbers) else dict(sorted(array.items(), key=lambda item: int(item[0])))


class ShellNumbers(MutableMapping[str, str]):
    """The variables of a state as arithmetic sees them."""

    def __init__(self, state: ShellState, read: Callable[[str], str]) -> None:
        self._state = state
        self._read = read

    def __getitem__(self, name: str) -> str:
        return self._read(name)

    def __setitem__(self, name: str, value: str) -> None:
        self._state.set(name, value)

    def __delitem__(self, name: str) -> None:
        self._state.variables.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.variables)

    def __len__(self) -> int:
        return len(self._state.variables)
