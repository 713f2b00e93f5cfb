"""The files that come along with an attempt: asked for by their content, taken in parts, laid out in its `work`."""

from __future__ import annotations

import base64
import binascii
import shutil
from pathlib import Path

from dtagent.attempts.store import ContentStore, Incoming, free_bytes
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles, make_private, write_atomic
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.preparation import PushRequest, WorkReply, WorkRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.protocol.tree import MAX_TREE_BYTES, TreeEntry, decode_tree, digest_of, is_digest

MAX_ASKED = 4000
"""Files asked for at once; the others are asked for afterwards."""
SPARE_BYTES = 64 * 1024**2
"""Room that has to be left on the disk for what the job itself writes."""


class Work:
    """Fills the `work` of attempts from one root's store."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.store = ContentStore(root)
        self._incoming: dict[AttemptKey, Incoming] = {}

    def fill(self, files: AttemptFiles, request: WorkRequest) -> WorkReply:
        """Lay the files out, or tell what is missing for that.

        Raises:
            RpcError: INVALID_PARAMS for a list that is none, REFUSED without room.
        """
        if not is_digest(request.tree) or not 0 < request.size <= MAX_TREE_BYTES:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NO_FILE_LIST())
        if files.tree.exists() and files.tree.read_text() == request.tree:
            return WorkReply(is_complete=True)
        text = self._tree(request)
        if text is None:
            return self._ask(request.key, [(request.tree, request.size)], request.size)
        try:
            entries = decode_tree(text)
        except ValueError as error:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.BAD_FILE_LIST(error=str(error))) from error
        missing = self._missing(entries)
        if not missing:
            missing = self._lay_out(files, entries)
        if missing:
            return self._ask(request.key, list(missing.items())[:MAX_ASKED], sum(missing.values()))
        write_atomic(files.tree, request.tree)
        self.forget(request.key)
        return WorkReply(is_complete=True)

    def push(self, request: PushRequest) -> int:
        """Take the next bytes of what was asked for; return how many there are by now.

        Raises:
            RpcError: WRONG_STATE where nothing was asked for, or other bytes; INVALID_PARAMS for a content that is not
                what its name says.
        """
        incoming = self._incoming.get(request.key)
        if incoming is None or incoming.received != request.offset:
            raise RpcError(ErrorCode.WRONG_STATE, sentences.PART_NOT_ASKED_FOR())
        try:
            data = request.data
            incoming.feed(data if isinstance(data, bytes) else base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError) as error:
            self.forget(request.key)
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.BAD_PART(error=str(error))) from error
        except OSError:
            self.forget(request.key)
            raise
        return incoming.received

    def forget(self, key: AttemptKey) -> None:
        """Give up what was asked for."""
        incoming = self._incoming.pop(key, None)
        if incoming is not None:
            incoming.close()

    def _tree(self, request: WorkRequest) -> str | None:
        if request.text is not None:
            if digest_of(request.text) != request.tree:
                raise RpcError(ErrorCode.INVALID_PARAMS, sentences.OTHER_FILE_LIST())
            return request.text
        data = self.store.read(request.tree, MAX_TREE_BYTES)
        try:
            return data.decode() if data is not None else None
        except UnicodeDecodeError as error:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.UNREADABLE_FILE_LIST()) from error

    def _missing(self, entries: list[TreeEntry]) -> dict[str, int]:
        return {item.digest: item.size for item in entries if not self.store.has(item.digest, item.size)}

    def _ask(self, key: AttemptKey, expected: list[tuple[str, int]], missing_bytes: int) -> WorkReply:
        self.forget(key)
        self._require_room(2 * missing_bytes)  # Once in the store, and once in `work`.
        self._incoming[key] = Incoming(self.store, expected)
        return WorkReply(False, [digest for digest, _ in expected], missing_bytes)

    def _lay_out(self, files: AttemptFiles, entries: list[TreeEntry]) -> dict[str, int]:
        """Write all files anew; return those whose content turned out to be damaged."""
        self._require_room(sum(item.size for item in entries))
        shutil.rmtree(files.work, ignore_errors=True)
        make_private(files.work)
        damaged = {}
        for item in entries:
            target = files.work / item.path
            make_private(target.parent)
            if not self.store.copy(item.digest, target, executable=item.executable):
                damaged[item.digest] = item.size
        return damaged

    def _require_room(self, size: int) -> None:
        free = free_bytes(self._root)
        if size + SPARE_BYTES > free:
            needed_mb, free_mb = f"{size / 1e6:.0f}", f"{free / 1e6:.0f}"
            said = sentences.NO_ROOM_FOR_FILES(needed=needed_mb, free=free_mb, path=str(self._root))
            raise RpcError(ErrorCode.REFUSED, said)
