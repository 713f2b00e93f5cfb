"""Looks at a host, or installs dtagent or tools on it.

For the latter the bytes of the wheels follow the request, in the order of its `files`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from dtagent.protocol.places import forget, record, usual_root

from dttui.fleet.deployment.frame_program import main, receive, run_tool, say
from dttui.fleet.deployment.root_program import Refusal, by_name, inspect_root
from dttui.fleet.deployment.tool_program import bring, tools_of

MANIFEST = "manifest.json"
PIP_OPTIONS = (
    *("--isolated", "--no-input", "--disable-pip-version-check", "--root-user-action=ignore", "--no-cache-dir"),
    *("--quiet", "--no-color", "--progress-bar=off", "--no-warn-script-location"),
    *("--no-index", "--only-binary=:all:", "--require-hashes"),
)
IMPORTS = "import dtagent.cli, psutil, pynvml, dacite"
VENV_TIMEOUT_S = 60
PIP_TIMEOUT_S = 150
CHECK_TIMEOUT_S = 30
BUSY_S = 15.0
"""How long another deployment is waited for, which may only be about to hear that it was broken off."""


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
        "tools": tools_of(place),
    }


def install(root: Path, request: dict[str, Any], stream: BinaryIO) -> dict[str, Any]:
    """Make a venv, install the wheels that come by `stream` into it, check it, and make it the current one."""
    digest = request["digest"]
    with sole_deployment_to(root) as (place, made):
        agents = place / "agents"
        staging = agents / f".new-{digest}-{os.getpid()}"
        final = agents / digest
        previous = current_version(place)
        _remove([path for path in agents.iterdir() if path.name.startswith(".") and not in_use(path)])
        try:
            if request["root"] is None and root in made and str(root) != usual_root():
                _record(root)
            say(step="receive")
            wheels = receive(staging / "incoming", request["files"], stream)
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


def equip(root: Path, request: dict[str, Any], stream: BinaryIO) -> dict[str, Any]:
    """Put the tools whose wheels come by `stream` beside the agent that is there."""
    with sole_deployment_to(root) as (place, _made):
        bring(place, request["files"], stream)
    return {}


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


def _record(root: Path) -> None:
    try:
        record(str(root))
    except OSError as error:
        raise Refusal("root-unrecorded", path=usual_root(), place=str(error.filename), reason=error.strerror) from error


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
def sole_deployment_to(root: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Make a root where there is none, and do the same there; yield its path without links, and what was made of it."""
    with contextlib.ExitStack() as stack:
        while True:
            made = [path for path in (root / "agents", root) if not os.path.lexists(path)]
            place = inspect_root(root, makes=True)
            agents = place / "agents"
            with contextlib.suppress(FileNotFoundError):  # Whose deployment fails takes away what it has made.
                place.chmod(0o700)
                agents.mkdir(exist_ok=True)
                descriptor = stack.enter_context(sole_deployment(agents))
                if os.path.samestat(os.fstat(descriptor), os.stat(agents)):
                    break
            stack.close()
        yield place, made


@contextlib.contextmanager
def sole_deployment(agents: Path) -> Iterator[int]:
    """Let nobody else install or remove versions meanwhile. Raises Refusal where somebody is at it."""
    descriptor = os.open(agents, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + BUSY_S
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise Refusal("busy", path=str(agents.parent)) from error
                time.sleep(0.05)
        yield descriptor
    finally:
        os.close(descriptor)


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
    actions = {"probe": lambda root, _request, _stream: probe(root), "install": install, "equip": equip}
    sys.exit(main(globals()["stdin"], actions))
