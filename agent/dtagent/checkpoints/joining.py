"""Makes one checkpoint of the parts that several hosts have written, once all of them are on this host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from dtagent.checkpoints.entries import files_of
from dtagent.checkpoints.forms import candidates, check, form_of_tracked, named_beside
from dtagent.checkpoints.shards import SHARD
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
        parts: directories of one name, what this host has written first. Of a file that several have written, as each
            host its own of what all its ranks have alike, the first counts.
    """
    place = store / JOINED
    try:
        shutil.rmtree(place, ignore_errors=True)
        whole = place / _INCOMING / parts[0].name
        whole.mkdir(mode=0o700, parents=True)
        for part in parts:
            for file, _seen in files_of(part, _MOST_FILES):
                _link(file, whole / file.relative_to(part))
        if beside := named_beside(form_of_tracked(whole), whole.name):
            (whole.parent / beside[0]).write_text(beside[1])
        (found,) = candidates(whole.parent)
        check(found)
        for item in list(whole.parent.iterdir()):
            item.rename(place / item.name)
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
        if file.suffix == SHARD:
            raise TornError(sentences.PARTS_OF_ONE()) from None
    except OSError:  # On another disk, or one without links.
        shutil.copyfile(file, name)
