"""The copies that a host keeps, and which of them: one directory a copy, which gets its name once it is whole."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from dtagent.protocol.replication import STORE, HeldCopy
from dtagent.replication.manifest import CopyError, Manifest, decoded
from dtagent.system.units import MIB
from dtagent.system.untrusted_files import read_object

RECORD = "COPY.json"
"""What is copied, beside it."""
_RECORD_BYTES = 16 * MIB
_INCOMING = ".incoming-"


def place_of(store: Path, node_rank: int) -> Path:
    """Return where the copies are of what one node writes."""
    return store / f"rank-{node_rank}"


def incoming(place: Path, manifest: Manifest) -> Path:
    """Return where a copy is written until it is whole; what other copies have left there goes."""
    own = place / f"{_INCOMING}{manifest.digest}"
    for path in place.glob(f"{_INCOMING}*"):
        if path != own:
            shutil.rmtree(path, ignore_errors=True)
    own.mkdir(mode=0o700, exist_ok=True)
    return own


def seal(own: Path, manifest: Manifest) -> Path:
    """Give a copy that has come whole its name; return its path. Raises OSError."""
    if manifest.beside is not None:
        name, content = manifest.beside
        _write(own / name, content)
    _write(own / RECORD, json.dumps(asdict(manifest)))
    for parent, _folders, _names in os.walk(own):
        sync_directory(Path(parent))
    whole = own.parent / f"{manifest.attempt}-{manifest.digest}"
    own.rename(whole)
    sync_directory(own.parent)
    return whole / manifest.name


def find(place: Path, manifest: Manifest) -> Path | None:
    """Return the path of a copy that is there already."""
    whole = place / f"{manifest.attempt}-{manifest.digest}"
    return whole / manifest.name if _manifest_in(whole) is not None else None


def held(stores: Iterable[str]) -> list[HeldCopy]:
    """Return the whole copies, the newest first."""
    found = [pair for store in stores for pair in _copies(Path(store))]
    found.sort(key=lambda pair: pair[1].age, reverse=True)
    return [
        HeldCopy(
            path=str(path / manifest.name),
            form=manifest.form,
            attempt=manifest.attempt,
            node_rank=manifest.node_rank,
            source=manifest.source,
            step=manifest.step,
            size_bytes=manifest.size_bytes,
            time=manifest.time,
            changed_ns=manifest.changed_ns,
        )
        for path, manifest in found
    ]


def prune(stores: Sequence[Path], node_rank: int, keep: int, taken: Path) -> None:
    """Remove all copies of what one node writes but the newest, and the one that was just taken.

    That may be an older one, which the next attempt goes on from, or one that is dated back by a clock that was set.
    """
    found = [pair for store in stores for pair in _copies_at(place_of(store, node_rank))]
    found.sort(key=lambda pair: pair[1].age, reverse=True)
    others = [path for path, _manifest in found if path != taken]
    for path in others[max(0, keep - 1) :]:
        _remove(path)


def drop(stores: Iterable[str]) -> None:
    """Remove all copies of a job. Raises OSError where one cannot be."""
    for store in stores:
        path = Path(store)
        if path.parent.name == STORE:  # Whatever is asked for, nothing else is removed.
            for left in (path, _remove(path)):
                if left.exists():
                    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(left))
            with contextlib.suppress(OSError):  # Those of another job stay.
                path.parent.rmdir()


def sync_directory(path: Path) -> None:
    """Make sure that the names in a directory outlive a power cut. Raises OSError."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _copies(store: Path) -> Iterator[tuple[Path, Manifest]]:
    with contextlib.suppress(OSError):
        for place in sorted(store.glob("rank-*")):
            yield from _copies_at(place)


def _copies_at(place: Path) -> Iterator[tuple[Path, Manifest]]:
    with contextlib.suppress(OSError):
        for path in sorted(place.iterdir()):
            if not path.name.startswith(".") and (manifest := _manifest_in(path)) is not None:
                yield path, manifest


def _manifest_in(path: Path) -> Manifest | None:
    """Return what a copy is of; `None` where it is not whole: each of its files has its length."""
    try:
        manifest = decoded(read_object(path / RECORD, _RECORD_BYTES))
        copy = path / manifest.name
        if all(os.stat(copy / file.path if file.path else copy).st_size == file.size for file in manifest.files):
            return manifest
    except (OSError, ValueError, CopyError):
        pass
    return None


def _remove(path: Path) -> Path:
    """Take the name from a copy before its files go: a half removed one is none. Return the name it had meanwhile."""
    hidden = path.with_name(f".removed-{path.name}")
    shutil.rmtree(hidden, ignore_errors=True)  # Where an earlier removal was cut short: nothing is renamed to it then.
    with contextlib.suppress(OSError):
        path.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)
    return hidden


def _write(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
