"""Makes one checkpoint of the parts that several hosts have written, once all of them are on this host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from dtagent.checkpoints.entries import files_of
from dtagent.checkpoints.shards import check_shards
from dtagent.checkpoints.wholeness import TornError
from dtagent.protocol import sentences
from dtagent.protocol.checkpoints import JOINED, JoinReply

_INCOMING = ".incoming"
_MOST_FILES = 20_000


def join(store: Path, parts: Sequence[Path]) -> JoinReply:
    """Join them, beside what a directory of copies holds; what was joined there before goes.

    Files are linked where that can be, so that they take no more room.

    Args:
        store: a directory of copies.
        parts: directories of shards, of one checkpoint of torch.distributed.checkpoint.
    """
    place = store / JOINED
    try:
        shutil.rmtree(place, ignore_errors=True)
        whole = place / _INCOMING / parts[0].name
        whole.mkdir(mode=0o700, parents=True)
        for part in parts:
            for file, _seen in files_of(part, _MOST_FILES):
                _link(file, whole / file.relative_to(part))
        check_shards(whole, may_be_overwritten=False)
        whole.rename(place / parts[0].name)
        return JoinReply(str(place / parts[0].name))
    except TornError as error:
        return JoinReply(detail=error.why)
    except OSError as error:
        path = str(error.filename or store)
        return JoinReply(detail=sentences.CANNOT_WRITE(path=path, reason=error.strerror or str(error)))
    finally:
        shutil.rmtree(place / _INCOMING, ignore_errors=True)


def _link(file: Path, name: Path) -> None:
    name.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.link(file, name, follow_symlinks=False)
    except FileExistsError:
        raise TornError(sentences.PARTS_OF_ONE()) from None
    except OSError:  # On another disk, or one without links.
        shutil.copyfile(file, name)
