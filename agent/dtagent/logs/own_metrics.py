"""The metrics that a job finds in its ranks' lines by regular expressions of its own, within bounds of time.

The matching happens in a process of its own (`pattern_worker`): it is ended where it does not answer in time.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from dtagent.locations import AttemptFiles, own_python
from dtagent.logs import pattern_worker
from dtagent.logs.trainer_numbers import to_number
from dtagent.logs.trainer_search import MAX_LINE_BYTES
from dtagent.system import untrusted_files

MAX_PATTERNS = 16
MAX_PATTERN_LENGTH = 500
"""Characters of one."""
MAX_LINES = 2000
"""Of one block of output that are looked at; of more the newest."""
ANSWER_S = 2.0
"""For all lines of a block; whoever takes longer is ended."""
START_S = 10.0
"""For its start besides: on a busy host, or from a network file system, Python takes long to begin."""
LOOK_S = 0.5
"""Of one look at an attempt, after which no more is asked until the next."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024


class OwnMetrics:
    """Of one attempt. Nothing runs where it names no expression.

    Args:
        patterns: by the name of the metric that the number in its group is.
    """

    def __init__(self, patterns: dict[str, str]) -> None:
        self.patterns = dict(list(patterns.items())[:MAX_PATTERNS])
        self.dropped: list[str] = []
        """Names of those that were too slow and are looked for no more."""
        self.passed_over = 0
        """Lines that were not looked at, since there was too much at a time."""
        self._worker: subprocess.Popen[bytes] | None = None
        self._left_s = LOOK_S

    def begin_look(self) -> None:
        """Give the next look its time."""
        self._left_s = LOOK_S

    def search(self, block: bytes) -> list[tuple[int, dict[str, float]]]:
        """Return where lines of a block begin that match, each with its numbers, in order. Whole lines only."""
        if not self.patterns:
            return []
        places, lines, at = [], [], 0
        for line in block.splitlines(keepends=True):
            text = line[:MAX_LINE_BYTES].decode(errors="replace").rstrip("\r\n")
            if text:
                places.append(at)
                lines.append(text)
            at += len(line)
        if self._left_s <= 0:
            self.passed_over += len(lines)
            return []
        self.passed_over += max(0, len(lines) - MAX_LINES)
        places, lines = places[-MAX_LINES:], lines[-MAX_LINES:]
        began = time.monotonic()
        answer = self._ask({"lines": lines}) if lines else {}
        self._left_s -= time.monotonic() - began
        self.passed_over += answer.get("unread", 0)
        found = []
        for index, told in answer.get("found", []):
            found.append((places[index], {name: to_number(value) for name, value in told.items()}))
        return found

    def close(self) -> None:
        """End the process."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            within_s = ANSWER_S
            if self._worker is None:
                self._worker = _start(self.patterns)
                within_s += START_S
            answer: dict[str, Any] = _converse(self._worker, request, within_s)
        except (OSError, ValueError):
            # It hangs or has died: nothing says by which of them.
            self.close()
            self.dropped, self.patterns = [*self.dropped, *self.patterns], {}
            return {}
        self.dropped = [*answer["dropped"]]
        if len(self.dropped) == len(self.patterns):
            self.close()
            self.patterns = {}
        return answer


def add_own(
    found: list[tuple[int, dict[str, float]]],
    at: list[int],
    reports: list[dict[str, Any]],
    first: int,
    last_step: int | None,
) -> int | None:
    """Add what was found to the report of its line, or of its step, or as one of its own.

    Args:
        found: of `OwnMetrics.search`, in a block.
        at: where in the block the lines begin whose reports are in `reports` from `first` on, in order.
        reports: takes it.
        first: see there.
        last_step: of the block before.

    Returns:
        The last step of the block; `last_step` where it names none.
    """
    own = iter(sorted(found))
    ahead = next(own, None)
    told: list[dict[str, Any]] = []
    for begin, report in [*zip(at, reports[first:], strict=True), (None, {})]:
        while ahead is not None and (begin is None or ahead[0] < begin):
            last_step = _tell(told, ahead[1], last_step)
            ahead = next(own, None)
        if begin is None:
            break
        if ahead is not None and ahead[0] == begin:
            report.update(_named(ahead[1]))
            ahead = next(own, None)
        last_step = report.get("step", last_step)
        told.append(report)
    reports[first:] = told
    return last_step


def _tell(told: list[dict[str, Any]], numbers: dict[str, float], last_step: int | None) -> int | None:
    report = _named(numbers)
    step: int | None = report.get("step", last_step)
    if told and step is not None and told[-1].get("step") == step:
        told[-1].update(report)
    else:
        told.append({**report, **({} if step is None else {"step": step})})
    return step


def _named(numbers: dict[str, float]) -> dict[str, Any]:
    named: dict[str, Any] = dict(numbers)
    if "step" in named:
        step = named.pop("step")
        named.update({"step": int(step)} if math.isfinite(step) else {})
    return named


def patterns_of(files: AttemptFiles) -> dict[str, str]:
    """Return the expressions that an attempt was started with; none where that cannot be read."""
    try:
        told = untrusted_files.read_object(files.start, untrusted_files.RECORD_BYTES).get("metric_patterns")
    except (OSError, ValueError):
        return {}
    if not isinstance(told, dict):
        return {}
    return {str(name): text for name, text in told.items() if isinstance(text, str) and len(text) <= MAX_PATTERN_LENGTH}


def _start(patterns: dict[str, str]) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [own_python(), "-I", str(Path(pattern_worker.__file__).resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            os.set_blocking(pipe.fileno(), False)
    _send(worker, {"patterns": patterns}, time.monotonic() + ANSWER_S)
    return worker


def _converse(worker: subprocess.Popen[bytes], request: dict[str, Any], within_s: float) -> dict[str, Any]:
    """Send a request and return the answer. Raises OSError or ValueError where none comes in time."""
    deadline = time.monotonic() + within_s
    _send(worker, request, deadline)
    assert worker.stdout is not None  # noqa: S101 - it was made with a pipe
    number, data = worker.stdout.fileno(), b""
    while not data.endswith(b"\n"):
        _wait_for(number, select.POLLIN, deadline)
        piece = os.read(number, 65536)
        data += piece
        if not piece or len(data) > MAX_ANSWER_BYTES:
            raise ValueError("no answer")
    answer = json.loads(data)
    if not isinstance(answer, dict):
        raise ValueError("no answer")
    return answer


def _send(worker: subprocess.Popen[bytes], request: dict[str, Any], deadline: float) -> None:
    assert worker.stdin is not None  # noqa: S101 - it was made with a pipe
    number, data = worker.stdin.fileno(), json.dumps(request).encode() + b"\n"
    while data:
        _wait_for(number, select.POLLOUT, deadline)
        data = data[os.write(number, data) :]


def _wait_for(number: int, event: int, deadline: float) -> None:
    """Wait until a pipe can be read or written. Raises ValueError where that takes too long."""
    poll = select.poll()
    poll.register(number, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise ValueError("not in time")
