"""The job directories on the login node: the one place that knows the file names in them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dtagent.protocol.events import Event, EventKind

from dttui import locations
from dttui.errors import UsageError
from dttui.files import OF_ANOTHER_VERSION, make_private
from dttui.i18n import _
from dttui.jobs.event_log import newest_event, read_events
from dttui.jobs.keep_requests import KeepRequests, parse_keep_requests
from dttui.jobs.unwritten import unwritten_events

if TYPE_CHECKING:
    from dttui.jobs.launch_file import LaunchFile
    from dttui.planning.models import BoundPlan, Plan

LAUNCHER = "launcher"
"""Name of the process that starts the ranks of a node, where there is one; its log files have it as well."""
CLAIM_PATIENCE_S = 0.3
HEARTBEAT_S = 5.0
"""How often a controller gives a sign of life."""
STALLED_S = 20.0
"""After so long without one nothing is known of its job."""
PROBE_BYTES = 64 * 1024
"""Room that there must be for logs to be worth another look."""
MAX_FILE_NAME_BYTES = 120
"""Of a node's name in file names; file systems allow 255, endings included."""


@dataclass(frozen=True)
class JobDirectory:
    """The files of one job."""

    path: Path

    @classmethod
    def of(cls, job_id: str) -> JobDirectory:
        """Return that of a job of this login node."""
        return cls(locations.jobs_directory() / job_id)

    @property
    def job_id(self) -> str:
        """The directory's name."""
        return self.path.name

    @property
    def document(self) -> Path:
        """job.yaml as it was given."""
        return self.path / "job.yaml"

    @property
    def launch(self) -> Path:
        """What was known at the submission, and its controllers need besides: a `LaunchFile`."""
        return self.path / "launch.json"

    @property
    def plan(self) -> Path:
        """The plan."""
        return self.path / "plan.json"

    @property
    def events(self) -> Path:
        """All events, a line each."""
        return self.path / "events.jsonl"

    @property
    def metrics(self) -> Path:
        """What the ranks reported, a line each."""
        return self.path / "telemetry" / "metrics.jsonl"

    @property
    def socket(self) -> Path:
        """The controller's socket; connected to by its bare name, since paths have a limit of 107 bytes."""
        return self.path / "controller.sock"

    @property
    def lock(self) -> Path:
        """Held by the controller for as long as it lives."""
        return self.path / "controller.lock"

    @property
    def stop_request(self) -> Path:
        """What the controller was asked to do last, `stop` or `kill`; one that comes after it does the same."""
        return self.path / "stop"

    @property
    def kept(self) -> Path:
        """Whether its hosts were told later to keep what the job has left there: `kept`, or `released`."""
        return self.path / "kept"

    @property
    def controller_log(self) -> Path:
        """The controller's own log."""
        return self.path / "controller.log"

    def bound_plan(self, attempt: int) -> Path:
        """The plan of one attempt, without holes."""
        return self.path / "attempts" / str(attempt) / "plan.json"

    def files(self, attempt: int) -> Path:
        """The list of files that one attempt runs with, as `tree.encode_tree` writes it."""
        return self.path / "attempts" / str(attempt) / "files.json"

    def hangs(self, attempt: int) -> Path:
        """Where the stacks of an attempt that hangs are: a file each time."""
        return self.path / "attempts" / str(attempt) / "hangs"

    def samples(self, node: str) -> Path:
        """Telemetry of one node, a line a sample."""
        return self.path / "telemetry" / f"{_file_name(node)}.jsonl"

    def logs(self, attempt: int, node: str) -> Path:
        """Directory of one node's log files: `<rank>.out`, `<rank>.err`, `launcher.out`, `launcher.err`."""
        return self.path / "logs" / str(attempt) / _file_name(node)

    @property
    def is_seen(self) -> bool:
        """Whether a person has looked at how the job has ended."""
        return self._seen.exists()

    def see(self) -> None:
        """Keep in mind that a person has; on a disk that takes nothing it is told again."""
        with contextlib.suppress(OSError):
            self._seen.touch(mode=0o600)

    @property
    def _seen(self) -> Path:
        return self.path / "seen"

    def has_logs(self, attempt: int, node: str) -> bool:
        """Tell whether an attempt printed anything on a node."""
        with contextlib.suppress(OSError):
            return any(path.stat().st_size for path in self.logs(attempt, node).iterdir())
        return False

    def has_controller(self) -> bool:
        """Whether a controller owns the job now."""
        try:
            descriptor = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)  # Also on a disk that has become read-only.
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # Of two who look at once, neither sees the other.
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def claim(self) -> int | None:
        """Take the controller's lock; return its descriptor, or `None` where a controller has it.

        Raises:
            OSError: the directory cannot be written, or its file system has no locks.
        """
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + CLAIM_PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    return None
                time.sleep(0.01)  # Whoever only looks holds it for a moment.
            except OSError:
                os.close(descriptor)
                raise
            else:
                return descriptor

    def watched_until(self) -> float | None:
        """Return the Unix time of the controller's last sign of life; `None` where there never was one."""
        with contextlib.suppress(OSError):
            return self.lock.stat().st_mtime
        return None

    def silence(self, now: float) -> str:
        """Return in words why nobody knows at Unix time `now` what becomes of the job; empty where somebody does."""
        seen = self.watched_until()
        since = time.strftime("%F %T", time.localtime(seen)) if seen is not None else ""
        if not self.has_controller():
            if not since:
                return _("no controller watches this job")
            return _("no controller watches this job since {time}; `dttui attach {id}` finds out").format(
                time=since, id=self.job_id
            )
        # Where the disk has become read-only, the sign of life is one that the controller gives itself.
        if seen is not None and now - seen > STALLED_S and unwritten_events(self.socket) is None:
            text = _("the controller of this job has not run since {time}: it is stopped, or this machine slept")
            return text.format(time=since)
        return ""

    def has_room(self) -> bool:
        """Whether logs can be written here now."""
        try:
            import tempfile  # As below: who only looks needs none of these.

            with tempfile.TemporaryFile(dir=self.path / "logs") as probe:
                probe.write(bytes(PROBE_BYTES))
        except OSError:
            return False
        return True

    def is_over(self) -> bool:
        """Whether the job has an outcome."""
        return newest_event(self.events, EventKind.OUTCOME) is not None

    def keep_requests(self) -> KeepRequests | None:
        """Return what its hosts were told last by `keep`; `None` where nobody has said anything since the start."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return parse_keep_requests(self.kept.read_text())
        return None

    def read_launch(self) -> LaunchFile:
        """Return what was written at the submission.

        Raises:
            OSError: there is nothing.
            UsageError: it is of another version of dttui, or damaged.
        """
        from dttui.jobs.launch_file import read_launch_file  # With its inventory, whose models few verbs want.

        return read_launch_file(self.launch)

    def read_plan(self) -> Plan:
        """Return the job's plan. Raises OSError, or ValueError where it is damaged."""
        from dttui.planning.models import Plan  # As above.

        return Plan.model_validate_json(self.plan.read_bytes(), extra=OF_ANOTHER_VERSION)

    def read_bound_plan(self, attempt: int) -> BoundPlan:
        """Return the plan of one attempt. Raises OSError, or ValueError where it is damaged."""
        from dttui.planning.models import BoundPlan  # As above.

        return BoundPlan.model_validate_json(self.bound_plan(attempt).read_bytes(), extra=OF_ANOTHER_VERSION)

    def read_events(self, *kinds: EventKind) -> list[Event]:
        """Return the events written so far, all or those of some kinds; a torn last line is left out."""
        return list(read_events(self.events, *kinds))


def slug(name: str) -> str:
    """Return a job's name as paths and ids have it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32] or "job"


def create(name: str) -> JobDirectory:
    """Make the directory of a new job; its id is made of the name, the time and a few random letters."""
    path = root = locations.jobs_directory()
    try:
        make_private(root)
        path = _make_directory(root, slug(name))
        for inner in ("telemetry", "logs"):
            (path / inner).mkdir(mode=0o700)
    except OSError as error:
        if path != root:
            import shutil

            shutil.rmtree(path, ignore_errors=True)
        raise UsageError(
            _("cannot make {path}: {reason}").format(path=error.filename or path, reason=error.strerror),
            _("Free some room, or set XDG_STATE_HOME to a directory you may write to."),
        ) from error
    return JobDirectory(path)


def _make_directory(root: Path, begin: str) -> Path:
    """Make a directory of a name that no other job has."""
    while True:
        path = root / f"{begin}-{time.strftime('%m%d-%H%M%S')}-{os.urandom(2).hex()}"
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path


def _file_name(node: str) -> str:
    """Return a node's name as a file name: what is not plain is written as its code point, a long one is cut."""
    plain = re.sub(r"[^A-Za-z0-9._-]|^\.", lambda match: f"~{ord(match[0]):x}", node)
    if len(plain) <= MAX_FILE_NAME_BYTES:
        return plain
    import hashlib

    mark = hashlib.sha256(node.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{plain[: MAX_FILE_NAME_BYTES - len(mark) - 1]}~{mark}"
