"""Rebuilds a directory as a kill leaves it, after each operation of its writer and in the middle of each file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.checkpoints.recorder import Operation, recording

_FIRST_NS = 1_700_000_000_000_000_000
_APART_NS = 1_000_000_000


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


Content = bytes | Link


@dataclass
class Tree:
    """What lies in a directory, with the times at which it was written."""

    directories: set[str] = field(default_factory=set)
    files: dict[str, Content] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> Tree:
        """Read a directory."""
        tree = cls()
        for parent, folders, names in os.walk(root):
            for name in (*folders, *names):
                path = Path(parent, name)
                key = os.path.relpath(path, root)
                if path.is_symlink():
                    tree.files[key] = Link(os.readlink(path))
                elif path.is_dir():
                    tree.directories.add(key)
                else:
                    tree.files[key] = path.read_bytes()
                tree.times[key] = path.lstat().st_mtime_ns
        return tree

    def copy(self) -> Tree:
        return Tree(set(self.directories), dict(self.files), dict(self.times))

    def write(self, root: Path) -> None:
        """Make a directory of it."""
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        for directory in sorted(self.directories):
            (root / directory).mkdir(exist_ok=True)
        for name, content in self.files.items():
            if isinstance(content, Link):
                (root / name).symlink_to(content.target)
            else:
                (root / name).write_bytes(content)
        for name in sorted((*self.directories, *self.files), key=len, reverse=True):
            when = self.times.get(name, _FIRST_NS)
            os.utime(root / name, ns=(when, when), follow_symlinks=False)

    def rename(self, before: str, after: str) -> None:
        def moved(name: str) -> str:
            return after + name[len(before) :] if name == before or name.startswith(before + "/") else name

        for name in [name for name in self.files if name == after]:
            del self.files[name]
        self.directories = {moved(name) for name in self.directories}
        self.files = {moved(name): content for name, content in self.files.items()}
        self.times = {moved(name): when for name, when in self.times.items()}


@dataclass(frozen=True)
class Kill:
    """What a kill has left."""

    where: str
    """After which operation, or in the middle of which file."""
    tree: Tree


def record(root: Path, write: Callable[[], object]) -> tuple[Tree, list[Operation], Tree]:
    """Return what lay in a directory before a writer wrote, what it did, and what lies there now."""
    before = Tree.of(root)
    with recording(root) as recorder:
        write()
    return before, recorder.operations, Tree.of(root)


def kills(before: Tree, operations: Sequence[Operation], contents: Mapping[str, Content]) -> Iterator[Kill]:
    """Yield what a kill leaves at each moment of a recorded writer.

    Args:
        before: what lay there.
        operations: of the writer.
        contents: of each file as it was written at last, by the path that it has in the end.
    """
    tree = before.copy()
    now = max([*tree.times.values(), _FIRST_NS]) + 3600 * _APART_NS
    yield Kill("before all", tree.copy())
    for index, operation in enumerate(operations):
        now += _APART_NS
        kind, path, to = operation
        where = f"{index}: {kind} {path} {to}".strip()
        tree.times[path] = tree.times[os.path.dirname(path) or "."] = now
        if kind == "mark":
            yield Kill(where, tree.copy())
            continue
        if kind == "mkdir":
            tree.directories.add(path)
        elif kind == "rename":
            tree.rename(path, to)
            tree.times[os.path.dirname(to) or "."] = now
        elif kind == "delete":
            tree.files.pop(path, None)
        elif kind == "rmdir":
            tree.directories.discard(path)
        else:
            content = contents.get(_last_name(path, operations[index:]), tree.files.get(path, b"\x80gone"))
            if kind == "create" and isinstance(content, Link):
                tree.files[path] = content
            elif kind == "create" or (kind == "modify" and isinstance(content, bytes)):
                tree.files[path] = b""
            if kind == "modify" and isinstance(content, bytes):
                for length in sorted({len(content) // 2, max(0, len(content) - 1), min(3, len(content))}):
                    if length < len(content):
                        tree.files[path] = content[:length]
                        yield Kill(f"{where}, {length} of {len(content)} bytes", tree.copy())
                tree.files[path] = b""
            if kind == "close":
                tree.files[path] = content
        yield Kill(where, tree.copy())


def _last_name(path: str, operations: Sequence[Operation]) -> str:
    """Return the name that a file has in the end."""
    for kind, before, after in operations:
        if kind == "rename" and (path == before or path.startswith(before + "/")):
            path = after + path[len(before) :]
    return path
