"""Removes containers that a daemon of the engine's goes on running although what started them here is gone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable

from dtagent.locations import AttemptFiles
from dtagent.protocol import sentences
from dtagent.protocol.jobs import ProcessSpec
from dtagent.supervision import journal
from dtagent.system import untrusted_files

DEADLINE_S = 30.0
"""How long an engine may take to remove all containers of an attempt."""
ERROR_LIMIT = 500
_IS_GONE = ("no such container", "no container with")
"""What engines say of one that went by itself, as `--rm` has it."""
_IS_GOING = "already in progress"
"""What docker says while one is going by itself: its processes have ended, and it is there a moment longer."""
PAUSE_S = 0.1
"""Before the engine is asked again."""


def carry_out(files: AttemptFiles, specs: Iterable[ProcessSpec]) -> None:
    """Carry out `removal` of all processes of an attempt at once; what fails becomes a warning of it."""
    deadline = time.monotonic() + DEADLINE_S
    for spec, engine in [(spec, _start(files, spec)) for spec in specs if spec.removal]:
        _settle(files, spec, engine, deadline)


def _settle(files: AttemptFiles, spec: ProcessSpec, engine: subprocess.Popen[bytes] | None, deadline: float) -> None:
    """Wait for the engine's answer, and ask it again for as long as the container is still going by itself."""
    while engine is not None:
        try:
            answer = engine.communicate(timeout=max(0.0, deadline - time.monotonic()))[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            engine.kill()
            engine.communicate()
            _warn(files, spec, sentences.NO_ANSWER(seconds=f"{DEADLINE_S:g}"))
            return
        if engine.returncode == 0 or any(words in answer.lower() for words in _IS_GONE):
            return
        if _IS_GOING not in answer.lower() or time.monotonic() >= deadline - PAUSE_S:
            _warn(files, spec, answer.strip()[:ERROR_LIMIT] or sentences.EXIT_CODE(code=engine.returncode))
            return
        time.sleep(PAUSE_S)
        engine = _start(files, spec)


def asked_for(files: AttemptFiles) -> list[ProcessSpec]:
    """Return the processes of an attempt that have one, by the record of its start; none where that is unreadable."""
    try:
        told = untrusted_files.read_object(files.start, untrusted_files.RECORD_BYTES)["processes"]
        return [ProcessSpec(**{**item, "env": dict(item["env"])}) for item in told if item.get("removal")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _start(files: AttemptFiles, spec: ProcessSpec) -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(
            spec.removal,
            cwd="/",
            env={**os.environ, **spec.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError:
        return None  # Then nothing was started by it either.
    except (OSError, ValueError) as error:
        _warn(files, spec, str(error))
        return None


def _warn(files: AttemptFiles, spec: ProcessSpec, reason: str) -> None:
    said = sentences.CONTAINER_LEFT(name=spec.name, command=" ".join(spec.removal), reason=reason)
    journal.append(files.journal, {"event": "warning", "time": time.time(), "text": said, "notice": said.notice})
