"""Finds the files that a script logs its loss to, where its ranks print none; in a thread of its own.

Event files of TensorBoard, offline runs of W&B, lines of JSON, tables of commas and the state of Hugging Face's
Trainer, below the ranks' working directories and those that their arguments name. What it looks through is bounded.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dtagent.locations import AttemptFiles
from dtagent.logs.metric_sources import MetricSource, Report
from dtagent.system import untrusted_files

LOG = logging.getLogger("dtagent")
GRACE_S = 30.0
"""Without a loss in the ranks' lines before files are looked for."""
EVERY_S = 5.0
"""Between two looks into a file."""
SEARCH_EVERY_S = 30.0
"""Between two searches for one."""
LAST_S = 3.0
"""Of the last look, for which the end of an attempt waits."""
MAX_DEPTH = 5
MAX_ENTRIES = 3000
"""Of all directories together that one search looks at."""
MAX_SOURCES = 16
MAX_ROOTS = 8
MAX_REPORTS = 512
"""Of one look; the newest."""

_NAME = re.compile(r"events\.out\.tfevents\..{1,200}|.{1,200}\.(?:jsonl|csv|wandb)|trainer_state\.json|scalars\.json")
_NOT_INTO = re.compile(r"\.|__|node_modules$|site-packages$|data$|datasets?$|checkpoints?$|cache$|venv$")
_OPTION = re.compile(r"-{0,2}[\w.-]*(?:out|log|save|work|run|result|project|tensorboard|exp)[\w.-]*", re.IGNORECASE)
_KINDS = (".jsonl", ".json", ".csv", "", ".wandb")


class _Reading:
    """One look into files, in a thread that nobody waits for: a file system may hang."""

    def __init__(self, work: Callable[[], list[Report]]) -> None:
        self.reports: list[Report] = []
        self.done = threading.Event()
        self._work = work
        threading.Thread(target=self._run, name="metric-files", daemon=True).start()

    def _run(self) -> None:
        try:
            self.reports = self._work()
        except Exception:  # The top of a thread.
            LOG.exception("cannot look for files with metrics")
        self.done.set()


class MetricFiles:
    """Of one attempt.

    Args:
        files: the attempt's.
        last_step: the last that was read of a file by another daemon.
    """

    def __init__(self, files: AttemptFiles, last_step: int | None = None) -> None:
        self._files = files
        self.last_step = last_step
        """The last that was told; what a file says of earlier ones is passed over."""
        self._source: MetricSource | None = None
        self._searched_at = self._looked_at = float("-inf")
        self._began_at: float | None = None
        self._reading: _Reading | None = None

    def look(self, now: float, *, is_over: bool) -> list[dict[str, Any]]:
        """Return what files have told since; it waits for none of them but at the end.

        Args:
            now: monotonic seconds.
            is_over: whether it is the last look.
        """
        if self._began_at is None:
            self._began_at = now
        due_at = max(self._began_at + GRACE_S, self._looked_at + EVERY_S)
        if self._reading is None and (is_over or now >= due_at):
            self._looked_at = now
            self._reading = _Reading(lambda: self._look(now, is_over=is_over))
        if self._reading is None or not self._reading.done.wait(LAST_S if is_over else 0):
            return []
        reports, self._reading = self._reading.reports, None
        return self._new_of(reports)

    def _new_of(self, reports: list[Report]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for report in reports:
            step = report.get("step")
            if step is not None and self.last_step is not None and step < self.last_step:
                continue
            self.last_step = int(step) if step is not None else self.last_step
            found.append({**report, **({} if step is None else {"step": int(step)})})
        return found[-MAX_REPORTS:]

    def _look(self, now: float, *, is_over: bool) -> list[Report]:
        """Read on in the file that has told a loss, or look for one; in the thread."""
        if self._source is not None:
            reports = self._source.new()
            if not self._source.is_given_up:
                return reports
            self._source = None
        if now - self._searched_at < SEARCH_EVERY_S and not is_over:
            return []
        self._searched_at = now
        for path in self._candidates():
            source = MetricSource(path)
            reports = source.new()
            if reports:
                # The state of a trainer lies in the newest checkpoint, which another one will be.
                self._source = None if path.name == "trainer_state.json" else source
                return reports
        return []

    def _candidates(self) -> list[Path]:
        """Return the files that may be it: of each kind the newest, in the order in which kinds are asked."""
        try:
            since = os.stat(self._files.start).st_mtime - 1
            request = untrusted_files.read_object(self._files.start, untrusted_files.RECORD_BYTES)
        except (OSError, ValueError):
            return []
        found: list[tuple[int, float, Path]] = []
        left = [MAX_ENTRIES]
        for root in roots_of(request):
            for path, changed_at in _walk(root, left):
                if changed_at >= since:
                    kind = path.suffix if path.suffix in _KINDS else ""
                    order = len(_KINDS) if path.name == "trainer_state.json" else _KINDS.index(kind)
                    found.append((order, -changed_at, path))
        return [path for _order, _age, path in sorted(found)[:MAX_SOURCES]]


def roots_of(request: dict[str, Any]) -> list[Path]:
    """Return the directories to look in: those that arguments name, then those in which processes run."""
    named: list[Path] = []
    running: list[Path] = []
    for process in [item for item in request.get("processes") or [] if isinstance(item, dict)]:
        cwd = str(process.get("cwd") or "")
        if not os.path.isabs(cwd) or cwd == "/":
            continue
        running.append(Path(cwd))
        argv = [str(item) for item in process.get("argv") or []]
        for option, value in zip(argv, [*argv[1:], ""], strict=True):
            name, equals, own = option.partition("=")
            if _OPTION.fullmatch(name) and (equals or name.startswith("-")):
                named.append(Path(cwd, own if equals else value))
    roots = [path for path in dict.fromkeys([*named, *running]) if path != Path("/") and path.is_dir()]
    return roots[:MAX_ROOTS]


def _walk(root: Path, left: list[int]) -> Iterator[tuple[Path, float]]:
    """Yield the files of a name that fits, with when they changed, the nearest first.

    Args:
        root: where to look.
        left: how many entries are looked at in all, which it counts down.
    """
    ahead = deque([(root, 0)])
    while ahead:
        directory, depth = ahead.popleft()
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                left[0] -= 1
                if left[0] < 0:
                    return
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MAX_DEPTH and not _NOT_INTO.match(entry.name):
                            ahead.append((Path(entry.path), depth + 1))
                    elif _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        yield Path(entry.path), entry.stat(follow_symlinks=False).st_mtime
