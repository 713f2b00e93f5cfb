"""What Python interpreters on this host offer to training, told by each itself without importing any of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dtagent.protocol import sentences
from dtagent.protocol.facts import MOST_MODULES, MOST_PACKAGES, PACKAGES, PythonFacts
from dtagent.protocol.said import Said
from dtagent.system.readings import Readings

TIMEOUT_S = 10.0
BEHIND_TIMEOUT_S = 20.0
"""Of one behind a prefix, which may have to set up a container first."""
MOST_AT_ONCE = 16
MAX_KNOWN = 64
"""Interpreters whose answer is remembered."""
MAX_DIRECTORIES = 64
"""Of an interpreter's path, those that are looked at for changes."""
SETTLED_NS = 2_000_000_000
"""How long ago the last change must be before an answer is remembered."""
MAX_OUTPUT_BYTES = 1 << 20
"""Of each stream; what a module file or a sitecustomize prints counts."""

OLDEST = (3, 8)
"""The first version with importlib.metadata, and the oldest that any PyTorch dttui launches runs on."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A distribution's."""
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
"""A module's of the first level."""
_MODULE_MARK = "@"
"""Before a module among the names that an interpreter is asked for."""
_MOST_NAMES = 8
"""Distributions that may bring one module."""
_MOST_PLACES = 16
"""Directories where modules are looked for besides."""
_MARK = "dtagent-python "
_NOTHING: dict[str, Any] = {
    "torch": {},
    "nccl": [],
    "editable": [],
    "environment": None,
    "path": [],
    "modules": {},
    "missing": [],
}
"""Of what a very old Python has no words for."""

# Runs under interpreters of any age. Not -I: that hides the user's site-packages and PYTHONPATH, which jobs do see.
# What -I is wanted for, a json.py in the current directory taking the place of the standard library's, is prevented by
# dropping the current directory from sys.path before the first import from a file (-P does it only from 3.11 on).
_SNIPPET = """\
import sys
sys.path[:] = [entry for entry in sys.path if entry not in ("", ".")]
import json, os, re
found, editable, torch, modules, missing = {}, [], {}, {}, []
try:
    from importlib import metadata
except ImportError:
    metadata = None
def read(path):
    try:
        with open(path, "rb") as stream:
            return stream.read(65536).decode("utf-8", "replace")
    except (OSError, TypeError, ValueError):
        return ""
failures = (ImportError, OSError, ValueError, LookupError, TypeError, AttributeError)
asked = [name for name in sys.argv[2:] if not name.startswith("@")]
for name in asked if metadata else []:
    try:
        dist = metadata.distribution(name)
        version = dist.version
        if not version:
            continue
        found[name] = str(version)
        direct = dist.read_text("direct_url.json")
        if direct and json.loads(direct).get("dir_info", {}).get("editable"):
            editable.append(name)
    except failures:
        continue
# One package that is published under many names.
for name in ("tensorflow-cpu", "tensorflow-rocm", "tensorflow-intel", "tensorflow-aarch64", "tf-nightly"):
    try:
        if "tensorflow" in asked and "tensorflow" not in found:
            found["tensorflow"] = metadata.version(name)
    except failures:
        continue
try:
    # The spec of a package that is not inside another one is found without running anything of it.
    from importlib.util import find_spec
    from importlib.machinery import PathFinder
    spec = find_spec("torch")
    place = os.path.dirname(spec.origin) if spec and spec.origin else None
except failures:
    place = None
if place:
    text = read(os.path.join(place, "version.py"))
    for key, name in (("cuda", "cuda"), ("hip", "rocm"), ("git_version", "git"), ("__version__", "version")):
        told = re.search("(?m)^" + key + "\\\\b[^=\\\\n]*= *['\\"]([^'\\"\\\\n]+)", text)
        if told:
            torch[name] = told.group(1)
    if "torch" not in found and "version" in torch:
        found["torch"] = torch["version"]
places = []
for word in sys.argv[2:] if metadata else []:
    if not word.startswith("@"):
        continue
    if word.startswith("@/"):
        places.append(word[1:])
        continue
    name, _, brought_by = word[1:].partition("=")
    try:
        # Of a module of the first level nothing is run for that. Those beside the job's are not in sys.path: what lies
        # there may have the name of a module that is imported here.
        if name not in sys.modules and find_spec(name) is None and PathFinder.find_spec(name, places) is None:
            missing.append(name)
            continue
    except ValueError:
        pass
    except failures:
        continue
    modules[name] = ""
    for dist in brought_by.split(","):
        try:
            modules[name] = modules[name] or str(metadata.version(dist))
        except failures:
            continue
conda = os.path.join(sys.prefix, "conda-meta")
try:
    listed = os.listdir(conda)
except OSError:
    listed = None
if listed is not None:
    environment = "conda"
else:
    environment = "venv" if sys.prefix != getattr(sys, "base_prefix", sys.prefix) else None
nccl = [found[name] for name in asked if name.startswith("nvidia-nccl-") and name in found]
for name in listed or []:
    told = re.match("nccl-([0-9.]+)-", name)
    if told and not nccl:
        nccl.append(told.group(1))
body = {
    "version": list(sys.version_info[:3]), "executable": sys.executable, "packages": found, "editable": editable,
    "torch": torch, "nccl": nccl[:1], "environment": environment, "path": [conda] + sys.path,
    "modules": modules, "missing": missing,
}
sys.stdout.write("\\n" + sys.argv[1] + json.dumps(body) + "\\n")
"""


@dataclass(frozen=True)
class ModuleQuestion:
    """Modules of the first level that a job imports."""

    modules: Mapping[str, Sequence[str]]
    """Each with the distributions that may bring it."""
    path: Sequence[str] = ()
    """Directories where they are looked for besides."""


@dataclass(frozen=True)
class Behind:
    """What a job puts before its interpreter, by which it may be another one than the host's."""

    prefix: list[str]
    """The words."""
    env: dict[str, str]
    """Variables that the job sets."""
    cwd: str
    """Where the job runs; the root directory counts where that is not there yet."""


def examine_all(
    pythons: list[str],
    timeout_s: float | None = None,
    behind: Behind | None = None,
    packages: Sequence[str] = (),
    modules: ModuleQuestion | None = None,
) -> list[PythonFacts]:
    """Examine interpreters side by side; the answers are in the order asked for."""
    names = tuple(sorted({name for name in packages if _NAME.fullmatch(name)}.difference(PACKAGES)))[:MOST_PACKAGES]
    further = (*names, *(_words(modules) if modules is not None else ()))
    timeout_s = timeout_s or (TIMEOUT_S if behind is None else BEHIND_TIMEOUT_S)
    # With a deadline: on a file system that hangs, even looking whether a file is there never returns.
    begun = {
        path: _READINGS.begin(
            f"{behind} {further} {path}", partial(examine, path, timeout_s, behind, further), timeout_s + 2.0
        )
        for path in list(dict.fromkeys(pythons))[:MOST_AT_ONCE]
    }
    answers: dict[str, PythonFacts] = {}
    for path, wait in begun.items():
        if wait is None:
            answers[path] = _unusable(path, sentences.PYTHON_NOT_EXAMINED(python=path))
        else:
            silent = _unusable(path, sentences.PYTHON_UNREACHABLE(python=path))
            answers[path] = wait() or silent
    found = [
        answers.get(path) or _unusable(path, sentences.PYTHON_ONE_TOO_MANY(python=path, count=MOST_AT_ONCE))
        for path in pythons
    ]
    return found if behind is None else [replace(item, prefix=behind.prefix) for item in found]


def _words(asked: ModuleQuestion) -> list[str]:
    """Return what an interpreter is asked for modules by: `@cv2=opencv-python,opencv-python-headless`, `@/srv/lib`."""
    names = [name for name in sorted(asked.modules)[:MOST_MODULES] if _MODULE.fullmatch(name)]
    brought_by = {name: [item for item in asked.modules[name][:_MOST_NAMES] if _NAME.fullmatch(item)] for name in names}
    places = [place for place in asked.path[:_MOST_PLACES] if os.path.isabs(place) and "\0" not in place]
    words = [f"{_MODULE_MARK}{name}={','.join(brought_by[name])}" for name in names]
    return [*(_MODULE_MARK + place for place in places), *words] if words else []


def examine(
    path: str, timeout_s: float = TIMEOUT_S, behind: Behind | None = None, further: tuple[str, ...] = ()
) -> PythonFacts:
    """Run one interpreter and return what it says of itself; why it cannot be used is in `error`.

    Args:
        path: an absolute path, `~/…`, or a bare name looked up on PATH.
        timeout_s: after which it, and all it started, is killed.
        behind: what it is to be started behind.
        further: distributions to look for besides `PACKAGES`, and modules.
    """
    if behind is not None:
        return _ask(path, None, timeout_s, behind, further)[0]
    found = resolve(path)
    if found.error is not None or found.executable is None:
        return found
    known = _CACHE.get(path, found.executable, further)
    if known is not None:
        return known
    facts, directories = _ask(path, found.executable, timeout_s, None, further)
    _CACHE.put(path, found.executable, directories, facts, further)
    return facts


def _ask(
    path: str, executable: str | None, timeout_s: float, behind: Behind | None, further: tuple[str, ...]
) -> tuple[PythonFacts, list[str]]:
    """Return what an interpreter says of itself, and the directories it imports from."""
    if behind is None:
        argv, cwd, env = [executable or path, "-c", _SNIPPET], "/", None
    else:
        # In one line, since `conda run` takes no others; and nothing is imported for that, as the snippet explains.
        whole = f"exec(bytes.fromhex('{_SNIPPET.encode().hex()}'))"
        argv = [*behind.prefix, os.path.expanduser(path), "-c", whole]
        cwd, env = behind.cwd if os.path.isdir(behind.cwd) else "/", {**os.environ, **behind.env}
    try:
        code, output, errors = run_bounded([*argv, _MARK, *PACKAGES, *further], timeout_s, cwd=cwd, env=env)
    except subprocess.TimeoutExpired:
        return _unusable(path, sentences.PYTHON_SILENT(python=path, seconds=f"{timeout_s:g}")), []
    except FloodError:
        return _unusable(path, sentences.PYTHON_FLOODS(python=path)), []
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return _unusable(path, sentences.PYTHON_NOT_RUN(python=path, error=why)), []
    body = marked_object(output, _MARK)
    if body is None:
        last = errors.strip().rpartition("\n")[2][:200]
        if code:
            return _unusable(path, how_it_ended(path, code, last)), []
        return _unusable(path, sentences.PYTHON_IS_NONE(python=path)), []
    body = {**_NOTHING, **body}
    version = tuple(int(part) for part in body["version"])
    too_old = None
    if version < OLDEST:
        too_old = sentences.PYTHON_TOO_OLD(python=path, version=_dotted(version), oldest=_dotted(OLDEST))
    has_asked = any(name.startswith(_MODULE_MARK) for name in further)
    facts = PythonFacts(
        path=path,
        executable=body["executable"] or executable,
        version=_dotted(version),
        packages=body["packages"],
        error=too_old,
        torch_cuda=body["torch"].get("cuda"),
        torch_rocm=body["torch"].get("rocm"),
        torch_git=body["torch"].get("git"),
        nccl=next(iter(body["nccl"]), None),
        editable=body["editable"] or None,
        environment=body["environment"],
        looked_for=[name for name in further if not name.startswith(_MODULE_MARK)] or None,
        modules=body["modules"] if has_asked else None,
        missing_modules=body["missing"] if has_asked else None,
    )
    return facts, body["path"]


class _Cache:
    """What interpreters said, for as long as neither they nor the directories they import from have changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str | None, ...], tuple[dict[str, int | None], PythonFacts]] = {}

    def get(self, path: str, executable: str, further: Sequence[str]) -> PythonFacts | None:
        """Return what is still true of an interpreter."""
        with self._lock:
            marks, facts = self._known.get(_key(path, executable, further), ({}, None))
        return facts if facts is not None and all(_changed_at(name) == mark for name, mark in marks.items()) else None

    def put(
        self, path: str, executable: str, directories: list[str], facts: PythonFacts, further: Sequence[str]
    ) -> None:
        """Remember an answer; the oldest one goes where there are too many."""
        marks = {name: _changed_at(name) for name in (executable, *directories[:MAX_DIRECTORIES])}
        newest = max((mark for mark in marks.values() if mark is not None), default=0)
        if facts.error is not None or time.time_ns() - newest < SETTLED_NS:
            return  # Another change within the same tick of the file system's clock would not show.
        key = _key(path, executable, further)
        with self._lock:
            self._known.pop(key, None)
            self._known[key] = (marks, facts)
            if len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]


def _key(path: str, executable: str, further: Sequence[str]) -> tuple[str | None, ...]:
    return path, executable, *further, os.environ.get("PYTHONPATH"), os.environ.get("PYTHONHOME")


def _changed_at(name: str) -> int | None:
    try:
        return os.stat(name).st_mtime_ns
    except (OSError, ValueError):
        return None


_CACHE = _Cache()
_READINGS = Readings(most=2 * MOST_AT_ONCE)


def resolve(path: str) -> PythonFacts:
    """Return where an interpreter lies, or why it cannot be used, and nothing else of it."""
    expanded = os.path.expanduser(path)
    if not path:
        return _unusable(path, sentences.PYTHON_NAMELESS())
    if "\0" in path:
        return _unusable(path, sentences.PYTHON_NO_PATH(python=path))
    if "/" not in expanded:
        where = shutil.which(expanded)
        return PythonFacts(path, where, None) if where else _unusable(path, sentences.PYTHON_NOT_ON_PATH(python=path))
    if not os.path.isabs(expanded):
        return _unusable(path, sentences.PYTHON_RELATIVE(python=path))
    if not os.path.exists(expanded):
        return _unusable(path, sentences.PYTHON_MISSING(python=path))
    if os.path.isdir(expanded):
        return _unusable(path, sentences.PYTHON_A_DIRECTORY(python=path))
    if not os.access(expanded, os.X_OK):
        return _unusable(path, sentences.PYTHON_NOT_EXECUTABLE(python=path))
    return PythonFacts(path, expanded, None)


class FloodError(Exception):
    """More was printed than any Python says of itself."""


def run_bounded(
    argv: list[str], timeout_s: float, *, cwd: str = "/", env: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Return exit code (negative: a signal), stdout and stderr of a program.

    Raises:
        OSError: it cannot be run.
        FloodError: it prints without end.
        subprocess.TimeoutExpired: it was killed, with all it started.
    """
    deadline = time.monotonic() + timeout_s
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
    ) as process:
        try:
            output, errors = _outputs(process, argv, deadline)
            process.wait(max(0.0, deadline - time.monotonic()))
        except BaseException:
            # The interpreter may be a wrapper script, whose children would live on.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output.decode(errors="replace"), errors.decode(errors="replace")


def _outputs(process: subprocess.Popen[bytes], argv: list[str], deadline: float) -> list[bytes]:
    """Return all of stdout and stderr. Raises FloodError or TimeoutExpired."""
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    found = {stream.fileno(): bytearray() for stream in streams}
    with selectors.DefaultSelector() as selector:
        for descriptor in found:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(argv, left_s)
            for key, _ in selector.select(left_s):
                part = os.read(key.fd, MAX_OUTPUT_BYTES)
                found[key.fd] += part
                if len(found[key.fd]) > MAX_OUTPUT_BYTES:
                    raise FloodError
                if not part:
                    selector.unregister(key.fd)
    return [bytes(data) for data in found.values()]


def marked_object(output: str, mark: str) -> dict[str, Any] | None:
    """Find a script's own line, which begins with `mark`, among what a wrapper or an imported package may print."""
    for line in reversed(output.split("\n")):
        if line.startswith(mark):
            try:
                body = json.loads(line[len(mark) :])
            except (ValueError, RecursionError):
                return None
            return body if isinstance(body, dict) else None
    return None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how_it_ended(python: str, code: int, last: str) -> Said:
    """Say how an interpreter ended that has not answered, with the last line that it printed, if any."""
    if code < 0:
        name = _signal_name(-code)
        if last:
            return sentences.PYTHON_KILLED_SAYING(python=python, signal=name, error=last)
        return sentences.PYTHON_KILLED(python=python, signal=name)
    if last:
        return sentences.PYTHON_EXITS_SAYING(python=python, code=code, error=last)
    return sentences.PYTHON_EXITS(python=python, code=code)


def _unusable(path: str, error: Said) -> PythonFacts:
    return PythonFacts(path=path, executable=None, version=None, error=error)
