"""What the pickles of a checkpoint say of its parts, read without importing or running anything that they name.

Whether all that the `.metadata` of torch.distributed.checkpoint names is there; how many ranks have a share of what
DeepSpeed saved. Every class is an empty one here; memory and time are bounded by whoever calls, since a pickle can take
any of both: see `dtagent.checkpoints.__main__`.
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from dtagent.checkpoints.wholeness import TornError
from dtagent.protocol import sentences
from dtagent.system.units import MIB
from dtagent.system.untrusted_files import opened

METADATA = ".metadata"
SHARD = ".distcp"
HEAD_BYTES = 64 * MIB
"""Longest pickle of a file of torch's that is read; the numbers of tensors are beside it."""
METADATA_BYTES = 256 * MIB
"""Longest `.metadata` that is read; those of thousands of shards have some tens of MiB."""


def metadata_files(directory: Path) -> list[Path]:
    """Return the files that say what a checkpoint of shards holds: one, or where ranks wrote alone, one of each."""
    if (directory / METADATA).is_file():
        return [directory / METADATA]
    return sorted(path for path in directory.glob(f"__*{METADATA}") if path.is_file())


def check_shards(directory: Path, name: str = "", *, may_be_overwritten: bool) -> None:
    """Look whether all shards are there, each as long as the metadata says.

    Args:
        directory: that holds the metadata.
        name: what it is called, with a slash, where its files are told of.
        may_be_overwritten: whether it may have been written over an older one, in whose `.metadata` nothing tells that:
            then none of its shards may be newer than that.

    Raises:
        TornError: something is missing, short or newer, or there is no metadata.
        OSError: a file cannot be read.
    """
    files = metadata_files(directory)
    if not files:
        raise TornError(sentences.MARK_IS_MISSING(file=name + METADATA))
    for file in files:
        written = os.stat(file).st_mtime_ns
        for shard, end in sorted(_ends(file, name + file.name).items()):
            told = name + shard
            if os.path.isabs(shard) or ".." in Path(shard).parts:
                raise TornError(sentences.FILE_ELSEWHERE(file=name + file.name, other=shard))
            try:
                seen = os.stat(directory / shard)
            except FileNotFoundError:
                raise TornError(sentences.FILE_IS_MISSING(file=told)) from None
            if seen.st_size < end:
                raise TornError(sentences.FILE_IS_SHORT(file=told, size=seen.st_size, wanted=end))
            if may_be_overwritten and seen.st_mtime_ns > written:
                raise TornError(sentences.FILE_IS_NEWER(file=told, other=name + file.name))


def _ends(file: Path, name: str) -> dict[str, int]:
    """Return the shards that metadata names, and how long each is at least."""
    ends: dict[str, int] = {}
    stored = getattr(_Inert(opened(file)).whole(name), "storage_data", None)
    for place in stored.values() if isinstance(stored, dict) else (None,):
        shard, offset, length = (getattr(place, key, None) for key in ("relative_path", "offset", "length"))
        if not (isinstance(shard, str) and isinstance(offset, int) and isinstance(length, int)) or "\0" in shard:
            raise TornError(sentences.FILE_IS_NONE(file=name))
        ends[shard] = max(ends.get(shard, 0), offset + length)
    return ends


def number_in(archive: Path, key: str) -> int | None:
    """Return a number in the dictionary that torch saved as a file; `None` where it tells none by that name.

    Raises:
        OSError: it cannot be read.
    """
    with opened(archive) as stream:
        try:
            with zipfile.ZipFile(stream) as parts:
                head = next((part for part in parts.infolist() if part.filename.endswith("/data.pkl")), None)
                if head is None or head.compress_type != zipfile.ZIP_STORED or head.file_size > HEAD_BYTES:
                    return None
                data = parts.read(head)
        except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError):
            return None
    try:
        told = _Inert(io.BytesIO(data)).load()
    except Exception:  # noqa: BLE001  bytes of any kind may raise nearly anything there
        return None
    value = told.get(key) if isinstance(told, dict) else None
    return value if type(value) is int and value > 0 else None


class _Value:
    """Stands for whatever class a pickle names: takes any state and any arguments, and does nothing."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __setstate__(self, state: object) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.__dict__.update((key, value) for key, value in part.items() if isinstance(key, str))

    def __setitem__(self, key: object, value: object) -> None: ...

    def append(self, value: object) -> None:
        """Of what a pickle calls for lists."""

    def extend(self, values: object) -> None:
        """Of what a pickle calls for lists."""

    def add(self, value: object) -> None:
        """Of what a pickle calls for sets."""


class _Inert(pickle.Unpickler):
    """Reads a pickle without importing or running anything that it names."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        super().__init__(stream)

    def find_class(self, module: str, name: str) -> Any:
        """Return an empty class, whatever is asked for."""
        return _Value

    def persistent_load(self, pid: Any) -> Any:
        """Return an empty value for what is kept elsewhere."""
        return _Value()

    def whole(self, name: str) -> Any:
        """Return the tree of what is called by a name.

        Raises:
            TornError: the pickle is broken, or too long to be read.
        """
        with self._stream as stream:
            if os.fstat(stream.fileno()).st_size > METADATA_BYTES:
                raise TornError(sentences.FILE_IS_HUGE(file=name))
            try:
                return self.load()
            except MemoryError as error:
                raise TornError(sentences.FILE_IS_HUGE(file=name)) from error
            except Exception as error:  # Bytes of any kind may raise nearly anything there.
                raise TornError(sentences.FILE_IS_NONE(file=name)) from error
