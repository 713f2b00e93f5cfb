"""The processes that hold torchrun's imports for jobs to come: which there are, since when, and when they go.

They belong to the daemon and end with it; what was forked from them does not.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from dtagent.attempts.host_requirements import find_python
from dtagent.payload.forking.fork_safety import is_sensitive
from dtagent.protocol import sentences
from dtagent.protocol.said import Said
from dtagent.protocol.warm_start import WarmReply, WarmRequest, WarmState
from dtagent.system.readings import Readings

IDLE_S = 1800.0
"""How long one stays that no job asks for."""
MAX_TOLD_BYTES = 4 * 1024 * 1024
MOST = 2
"""How many there may be: each holds the memory of an imported torch."""
END_S = 2.0
LOOK_S = 5.0
"""How long looking at the files of one may take: there are thousands, perhaps on a network disk that hangs."""
_SILENT = sentences.WARM_FILES_SILENT()


class WarmStarts:
    """The templates of one daemon. Methods may be called from any thread; none waits for a disk under the lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._templates: dict[str, _Template] = {}
        self._looks = Readings(most=2 * MOST)

    def ask(self, request: WarmRequest) -> WarmReply:
        """See to it that there is one for an interpreter, without waiting until it is ready; tell how it stands.

        Raises:
            RpcError: REFUSED where there is no such interpreter.
        """
        python = find_python(request.python)
        env = {name: value for name, value in {**os.environ, **request.env}.items() if is_sensitive(name)}
        known = self._templates.get(python)
        has_changed = self._has_changed(known) if known is not None else False
        if known is not None and (known.env != env or known.is_spent or has_changed):
            self._drop(known)
        if (template := self._templates.get(python)) is None:
            made = _Template(python, env)
            with self._lock:
                template = self._templates.setdefault(python, made)
            if template is not made:  # Another job was quicker.
                made.close()
        template.used_at = time.monotonic()
        for other in sorted(self._all(), key=lambda item: item.used_at)[:-MOST]:
            self._drop(other)
        if template is known and has_changed is None:
            return WarmReply(python, WarmState.FAILED, _SILENT)
        return template.tell()

    def hand_over(self, python: str) -> socket.socket:
        """Return the supervisor's end of a socket, at whose other end a fork server will be, or a refusal lies."""
        ours, theirs = socket.socketpair()
        template = self._templates.get(python)
        with theirs:
            reason: Said | None = sentences.WARM_NONE()
            if template is not None:
                template.used_at = time.monotonic()
                has_changed = self._has_changed(template)
                if has_changed is None:
                    reason = _SILENT
                elif has_changed:
                    self._drop(template)
                    reason = sentences.WARM_CHANGED()
                else:
                    reason = template.fork(theirs)
            if reason is not None:
                theirs.sendall(json.dumps({"refused": reason, "notice": reason.notice}).encode() + b"\n")
        return ours

    def expire(self) -> None:
        """End those that nobody has asked for in a long time, and those that have changed under them."""
        for template in self._all():
            if time.monotonic() - template.used_at > IDLE_S or self._has_changed(template):
                self._drop(template)

    def close(self) -> None:
        """End all."""
        for template in self._all():
            self._drop(template)

    def _has_changed(self, template: _Template) -> bool | None:
        """Whether what it was made of has changed; `None` where that cannot be found out in time."""
        has_changed: bool | None = self._looks.within(str(template.pid), template.has_changed, LOOK_S)
        return has_changed

    def _all(self) -> list[_Template]:
        with self._lock:
            return list(self._templates.values())

    def _drop(self, template: _Template) -> None:
        with self._lock:
            if self._templates.get(template.python) is template:
                del self._templates[template.python]
        template.close()


class _Template:
    def __init__(self, python: str, env: dict[str, str]) -> None:
        self.python = python
        self.env = env
        self.used_at = time.monotonic()
        self.is_spent = False
        """Whether it was told that nothing comes of this one: the next that is asked for may go better."""
        self._error: Said | None = None
        self._torch: str | None = None
        self._marks: dict[str, tuple[int, ...] | None] = {}
        self._reading = threading.Lock()
        self._rest = b""
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        script = str(importlib.resources.files("dtagent.payload") / "warm.py")
        others = {name: value for name, value in os.environ.items() if not is_sensitive(name)}
        with theirs:
            self._process = subprocess.Popen(
                [python, script, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={**others, **env},
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def fork(self, end: socket.socket) -> Said | None:
        """Have a fork server forked that has this socket; return why that cannot be, where it cannot."""
        if self._error or self._process.poll() is not None:
            self.is_spent = True
            return self._error or sentences.WARM_ENDED()
        try:
            if self._torch is not None:
                os.write(end.fileno(), b'{"ready": true}\n')
            socket.send_fds(self._channel, [b"{}\n"], [end.fileno()])
        except OSError as error:
            return sentences.WARM_TAKES_NOTHING(error=str(error.strerror))
        return None

    def has_changed(self) -> bool:
        """Whether the interpreter, a file that was loaded, or a directory that modules came from has changed.

        Takes in first what it has told of those. Hangs where their file system does.
        """
        self._read()
        return any(mark_of(path) != mark for path, mark in self._marks.items())

    def tell(self) -> WarmReply:
        """Tell how it stands, as of the last look at it."""
        if self._process.poll() is not None and not self._error:
            self._error = sentences.WARM_ENDED_IMPORTING() if self._torch is None else sentences.WARM_ENDED()
        state = WarmState.STARTING if self._torch is None else WarmState.READY
        if self._error:
            state, self.is_spent = WarmState.FAILED, True
        memory_mib = _memory_mib(self._process.pid) if state is not WarmState.FAILED else None
        return WarmReply(self.python, state, self._error or "", self._torch, self.pid, memory_mib)

    def close(self) -> None:
        """End it; what was forked from it goes on."""
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)

    def _read(self) -> None:
        """Take what it has told, if it has."""
        with self._reading:
            if self._torch is not None or self._error:
                return
            with contextlib.suppress(OSError):
                while len(self._rest) < MAX_TOLD_BYTES and (data := self._channel.recv(65536)):
                    self._rest += data
            if b"\n" not in self._rest and len(self._rest) < MAX_TOLD_BYTES:
                return
            try:
                body = json.loads(self._rest)
                if "error" in body:
                    self._error = sentences.say(body["error"])
                else:
                    self._marks = {path: mark_of(path) for path in (self.python, *map(str, body["paths"]))}
                    self._torch = str(body["torch"])
            except (ValueError, KeyError, TypeError, AttributeError):
                self._error = sentences.WARM_NONSENSE()
            if self._error:
                self.close()


def mark_of(path: str) -> tuple[int, ...] | None:
    """Return what is another once a file has been written or put in another's place, whatever time it carries."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _memory_mib(pid: int) -> int | None:
    """Return the memory of a process: its share where pages are shared."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) // 1024
    return None
