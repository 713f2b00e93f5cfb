"""Looks at a host, or installs dtagent on it. dttui pushes this text there: the standard library of Python 3.10 only.

Its input is one line of JSON, the request, and for an installation the bytes of the wheels, in the order of `files`.
Its output is lines of JSON behind `MARK`: `{"step": …}` on the way, then `{"result": …}` or `{"refusal": code, …}`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import io
import json
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dtagent.protocol.places import find_root, forget, new_root, record, usual_root

Action = Callable[[Path, dict[str, Any], BinaryIO], dict[str, Any]]
"""What is done for a request with the agent's root, by its name; more of the input may belong to it."""

MARK = b"dttui-deploy: "
MANIFEST = "manifest.json"
NETWORK_FILE_SYSTEMS = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs"}
    | {"lustre", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs"}
)
PIP_OPTIONS = (
    *("--isolated", "--no-input", "--disable-pip-version-check", "--root-user-action=ignore", "--no-cache-dir"),
    *("--quiet", "--no-color", "--progress-bar=off", "--no-warn-script-location"),
    *("--no-index", "--only-binary=:all:", "--require-hashes"),
)
IMPORTS = "import dtagent.cli, psutil, pynvml, dacite"
OWN_NAMES = frozenset({"agents", "current", "agent.sock", "daemon.err", "jobs", "store"})
"""What makes a directory with something in it known as an agent's."""
MAX_STEPS = 256
VENV_TIMEOUT_S = 60
PIP_TIMEOUT_S = 150
CHECK_TIMEOUT_S = 30

_DIRECTORY = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_names: dict[str, str] = {}
"""Directories that are held open, as `/proc` has them, and what they are called."""


class Refusal(Exception):
    """Why this host is not, or could not be, given an agent: a code and what goes with it."""

    def __init__(self, code: str, **details: object) -> None:
        super().__init__(code)
        self.code = code
        self.details = details


def main(source: io.FileIO, actions: Mapping[str, Action]) -> int:
    """Read the request, do what it names, and say how it ended; return the exit status."""
    os.umask(0o077)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _stop)
    # A login shell may have printed something without a line end.
    os.write(1, b"\n")
    try:
        say(**_answer(io.BufferedReader(source), actions))
    except BrokenPipeError:
        return 1
    return 0


def _answer(stream: BinaryIO, actions: Mapping[str, Action]) -> dict[str, Any]:
    try:
        request = json.loads(stream.readline())
        root = Path(request["root"] or find_root() or new_root())
        return {"result": actions[request["action"]](root, request, stream)}
    except Refusal as refusal:
        details = {name: by_name(item) if isinstance(item, str) else item for name, item in refusal.details.items()}
        return {"refusal": refusal.code, **details}
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return {"refusal": "disk-full", "path": str(root)}
        if error.errno == errno.EROFS:
            return {"refusal": "root-read-only", "path": str(root)}
        path = by_name(str(error.filename))
        reason = error.strerror or str(error)
        return {"refusal": "system", "path": path if path.startswith("/") else str(root), "reason": reason}


def _stop(number: int, _frame: object) -> None:
    # An exception, so that what is half made is removed on the way out, which a second signal must not interrupt.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def say(**message: object) -> None:
    """Write one line of the answer."""
    line = MARK + json.dumps(message).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


def probe(root: Path) -> dict[str, Any]:
    """Say what this host is and what is installed. Writes nothing."""
    place = inspect_root(root)
    space = os.statvfs(next(path for path in (place, *place.parents) if path.is_dir()))
    current = current_version(place)
    version, reason = None, ""
    if current:
        try:
            version = check(place / "agents" / current)
        except Refusal as refusal:
            reason = by_name(str(refusal.details.get("output", "")))
    return {
        "root": str(root),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "executable": sys.executable,
        "has_venv": importlib.util.find_spec("venv") is not None,
        "architecture": platform.machine() if sys.maxsize > 2**32 else f"{platform.machine()} (32 bit)",
        "libc": _libc(),
        "free_bytes": space.f_bavail * space.f_frsize,
        "executable_mount": not space.f_flag & os.ST_NOEXEC,
        "current": current,
        "version": version,
        "broken": reason,
    }


def install(root: Path, request: dict[str, Any], stream: BinaryIO) -> dict[str, Any]:
    """Make a venv, install the wheels that come by `stream` into it, check it, and make it the current one."""
    digest = request["digest"]
    made = [path for path in (root / "agents", root) if not os.path.lexists(path)]
    place = inspect_root(root, makes=True)
    place.chmod(0o700)
    agents = place / "agents"
    agents.mkdir(exist_ok=True)
    staging = agents / f".new-{digest}-{os.getpid()}"
    final = agents / digest
    with sole_deployment(agents):
        previous = current_version(place)
        _remove([path for path in agents.iterdir() if path.name.startswith(".") and not in_use(path)])
        try:
            if request["root"] is None and root in made and str(root) != usual_root():
                _record(root)
            say(step="receive")
            wheels = _receive(staging / "incoming", request["files"], stream)
            say(step="venv")
            run_tool("venv-failed", [sys.executable, "-I", "-m", "venv", "--without-pip", str(staging)], VENV_TIMEOUT_S)
            say(step="install")
            _pip_install(staging, wheels, request["requirements"])
            shutil.rmtree(wheels)
            _relocate(staging, Path(by_name(str(final))))
            _write_manifest(staging)
            say(step="check")
            version = check(staging)
            say(step="switch")
            _replace(final, staging)
            switch_current(place, digest)
        except BaseException:
            _remove([staging])
            for path in made:
                with contextlib.suppress(OSError):
                    path.rmdir()
                    forget(str(path))
            raise
        _remove([path for path in agents.iterdir() if path.name not in (digest, previous) and not in_use(path)])
    return {"version": version, "directory": by_name(str(final))}


def check(venv: Path) -> str:
    """Return the version that the agent in `venv` says, having seen that every file is as it was installed."""
    try:
        manifest: dict[str, str] = json.loads((venv / MANIFEST).read_text())
        for name, expected in manifest.items():
            if hashlib.sha256((venv / name).read_bytes()).hexdigest() != expected:
                raise Refusal("check-failed", output=f"{name} has changed")
    except (OSError, ValueError) as error:
        raise Refusal("check-failed", output=str(error)) from error
    python = str(venv / "bin" / "python")
    run_tool("check-failed", [python, "-I", "-c", IMPORTS], CHECK_TIMEOUT_S)
    output = run_tool("check-failed", [python, "-I", "-m", "dtagent", "--version"], CHECK_TIMEOUT_S)
    name, _, version = output.strip().partition(" ")
    if name != "dtagent" or not version:
        raise Refusal("check-failed", output=output)
    return version


def inspect_root(root: Path, *, makes: bool = False) -> Path:
    """Refuse a root that is unsafe; return a path that leads to it whoever exchanges what it is named by.

    What is missing of it stands at the path's end, unless it is to be made.
    """
    reached, missing = _open(root, makes=makes)
    place = Path(f"/proc/self/fd/{reached}")
    _names[str(place)] = str(Path(root, *[".."] * len(missing)).resolve()) if missing else str(root)
    info = os.fstat(reached)
    if not missing:
        if info.st_uid != os.getuid():
            raise Refusal("root-not-ours", path=str(root), uid=info.st_uid)
        if info.st_mode & 0o022:
            raise Refusal("root-open", path=str(root))
        names = set(os.listdir(place))
        if names and not names & OWN_NAMES:
            raise Refusal("root-foreign", path=str(root))
    kind = file_system_of(place.resolve())
    if kind in NETWORK_FILE_SYSTEMS:
        raise Refusal("network-file-system", path=str(root), kind=kind)
    return place.joinpath(*missing)


def _open(root: Path, *, makes: bool) -> tuple[int, list[str]]:
    """Open a directory from the top down, each component in the one above; return the last there is, and the rest.

    A link on the way is followed where nobody but this user and root can have put it there; as the kernel does where it
    protects links, and here always. Nothing is opened below a directory whose entries others can exchange.
    """
    left = [*reversed(root.parts[1:])]
    reached = os.open("/", _DIRECTORY)
    for step in range(MAX_STEPS + 1):  # Links may go round in a circle, and come and go.
        if not left:
            break
        if step == MAX_STEPS:
            raise Refusal("root-not-directory", path=str(root))
        _refuse_exchangeable(root, os.fstat(reached))
        try:
            below = os.open(left[-1], _DIRECTORY, dir_fd=reached)
        except FileNotFoundError:
            if not makes:
                break
            with contextlib.suppress(FileExistsError):
                os.mkdir(left[-1], 0o700, dir_fd=reached)
            continue
        except NotADirectoryError:
            try:
                info = os.stat(left[-1], dir_fd=reached, follow_symlinks=False)
                target = Path(os.readlink(left[-1], dir_fd=reached)) if stat.S_ISLNK(info.st_mode) else None
            except OSError:
                continue
            if target is None or len(left) == 1:
                raise Refusal("root-not-directory", path=str(root)) from None
            _refuse_exchangeable(root, os.fstat(reached), info.st_uid)
            left.pop()
            left += reversed(target.parts[target.is_absolute() :])
            if not target.is_absolute():
                continue
            below = os.open("/", _DIRECTORY)
        else:
            left.pop()
        os.close(reached)
        reached = below
    os.set_inheritable(reached, True)  # For the programs that are given paths below it.
    return reached, left[::-1]


def _refuse_exchangeable(root: Path, info: os.stat_result, owner: int = 0) -> None:
    """Refuse a root where others can exchange what a directory holds, or have put a link of theirs into it."""
    trusted = (0, os.getuid(), _unmapped_user())
    is_open = bool(info.st_mode & 0o022)
    if info.st_uid not in trusted or (is_open and not (info.st_mode & stat.S_ISVTX and owner in trusted)):
        raise Refusal("root-exchangeable", path=str(root))


def _unmapped_user() -> int:
    """Return who owns what root does outside, in a container that has users of its own; else root."""
    with contextlib.suppress(OSError, ValueError):
        if Path("/proc/self/uid_map").read_text().split() != ["0", "0", str(2**32 - 1)]:
            return int(Path("/proc/sys/kernel/overflowuid").read_text())
    return 0


def by_name(text: str) -> str:
    """Return a text with the names of directories in it for the paths by which this program reaches them."""
    for place, name in _names.items():
        text = re.sub(re.escape(place) + r"(?![0-9])", lambda _match, name=name: name, text)  # type: ignore[misc]  # mypy cannot tell a lambda's default
    return text


def _record(root: Path) -> None:
    try:
        record(str(root))
    except OSError as error:
        raise Refusal("root-unrecorded", path=usual_root(), place=str(error.filename), reason=error.strerror) from error


def file_system_of(path: Path) -> str:
    """Return the type of the file system that holds `path`; of two mounts at one place the later one shows."""
    longest, kind = "", ""
    for line in Path("/proc/self/mountinfo").read_bytes().decode(errors="surrogateescape").splitlines():
        fields, _, rest = line.partition(" - ")
        place = fields.split(" ")[4]
        for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            place = place.replace(code, character)
        if len(place) >= len(longest) and path.is_relative_to(place):
            longest, kind = place, rest.split(" ")[0]
    return kind


def _libc() -> str:
    # musl has no such name, and neither os.confstr nor its constants there.
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def current_version(root: Path) -> str | None:
    """Return the name of the version in use."""
    try:
        return Path(os.readlink(root / "current")).name
    except OSError:
        return None


@contextlib.contextmanager
def sole_deployment(agents: Path) -> Iterator[None]:
    """Let nobody else install or remove versions meanwhile. Raises Refusal where somebody is at it."""
    descriptor = os.open(agents, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise Refusal("busy", path=str(agents.parent)) from error
    finally:
        os.close(descriptor)


def _receive(directory: Path, files: list[dict[str, Any]], stream: BinaryIO) -> Path:
    directory.mkdir(parents=True)
    for file in files:
        content = stream.read(file["size"])
        if hashlib.sha256(content).hexdigest() != file["sha256"]:
            raise Refusal("corrupt", name=file["name"], received=len(content), size=file["size"])
        (directory / file["name"]).write_bytes(content)
    return directory


def _pip_install(venv: Path, wheels: Path, requirements: str) -> None:
    listed = wheels / "requirements.txt"
    listed.write_text(requirements)
    pip = next(wheels.glob("pip-*.whl")) / "pip"
    argv = [str(venv / "bin" / "python"), "-I", str(pip), "install", *PIP_OPTIONS]
    argv += [f"--find-links={wheels}", "-r", str(listed)]
    # In the same file system, whose room was looked at; /tmp may be full or small.
    temporary = wheels / "tmp"
    temporary.mkdir()
    run_tool("pip-failed", argv, PIP_TIMEOUT_S, TMPDIR=str(temporary))


def run_tool(code: str, argv: list[str], timeout_s: float, **extra: str) -> str:
    """Run a program without what the user's environment says to Python and pip; return what it printed."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "VIRTUAL_ENV"))
    }
    environment.update(extra, PIP_CONFIG_FILE=os.devnull)
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            close_fds=False,  # The root, through which it is named, is the one that is not closed by itself.
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Refusal(code, output=f"not done after {timeout_s:g} s") from error
    except OSError as error:
        raise Refusal(code, output=str(error)) from error
    output = done.stdout.decode(errors="replace")
    if done.returncode:
        if os.strerror(errno.ENOSPC) in output or os.strerror(errno.EDQUOT) in output:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise Refusal(code, output=output[-4000:] or f"exit status {done.returncode}")
    return output


def _relocate(staging: Path, final: Path) -> None:
    """Let scripts and settings, which name the place where they were made, name the one where they will be."""
    for path in (*(staging / "bin").iterdir(), staging / "pyvenv.cfg"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if os.fsencode(staging) in content:
                path.write_bytes(content.replace(os.fsencode(staging), os.fsencode(final)))


def _write_manifest(venv: Path) -> None:
    """Note the hash of every file, and bring them to the disk; tmp cleaners take single files out of /var/tmp."""
    hashes: dict[str, str] = {}
    for path in sorted(venv.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.suffix != ".pyc":
            with path.open("rb") as stream:
                hashes[str(path.relative_to(venv))] = hashlib.sha256(stream.read()).hexdigest()
                os.fsync(stream.fileno())
    with (venv / MANIFEST).open("w") as stream:
        json.dump(hashes, stream)
        stream.flush()
        os.fsync(stream.fileno())


def _replace(final: Path, staging: Path) -> None:
    if final.exists():
        final.rename(final.with_name(f".old-{final.name}-{os.getpid()}"))
    staging.rename(final)


def switch_current(root: Path, digest: str) -> None:
    """Point `current` at a version in one step: whoever looks finds the old one or the new one."""
    link = root / f".current-{os.getpid()}"
    link.unlink(missing_ok=True)
    try:
        link.symlink_to(Path("agents", digest))
        link.replace(root / "current")
    finally:
        link.unlink(missing_ok=True)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def in_use(version: Path) -> bool:
    """Whether a process of ours runs from a version: its command line, environment or mapped files name it."""
    needle = os.fsencode(version.resolve()) + b"/"
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ", "maps"):
            with contextlib.suppress(OSError):
                if process.stat().st_uid == os.getuid() and needle in (process / name).read_bytes():
                    return True
    return False


def _remove(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(globals()["stdin"], {"probe": lambda root, _request, _stream: probe(root), "install": install}))
