"""Looks at what of a host no agent need tell: names, limits of a login, its SSH server, its own keys. Changes nothing.

Pushed with `manage_program` to a host, and run on the login node as it is: the standard library of Python 3.10 has to
do. What cannot be read is `None`, and each look-up of a name has a deadline, since resolvers hang.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import resource
import shutil
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from dttui.fleet.deployment.frame_program import main, run_tool
from dttui.fleet.deployment.manage_program import inspect
from dttui.fleet.deployment.root_program import Refusal, by_name, inspect_root

LOOKUP_S = 3.0
"""How long the look-up of one name may take."""
FACTS_TIMEOUT_S = 25
FIREWALLS = ("firewall-cmd", "ufw", "iptables", "nft")
_SSHD_CONFIG = "/etc/ssh/sshd_config"
_SSHD_OPTIONS = ("maxsessions", "maxstartups", "usedns")
_Value = TypeVar("_Value")


def examine(root: Path, request: dict[str, Any], stream: BinaryIO) -> dict[str, Any]:
    """Tell all of it, and what agent is there; where no daemon of it serves, its facts about `pythons` too."""
    began_at, began = time.time(), time.monotonic()
    agent, refusal, facts = None, None, None
    try:
        agent = inspect(root, request, stream)
    except Refusal as refused:
        details = {name: by_name(item) if isinstance(item, str) else item for name, item in refused.details.items()}
        refusal = {"refusal": refused.code, **details}
    if agent is not None and agent["probe"]["version"] is not None and agent["daemon"] is None:
        facts = _facts(root, agent["probe"]["current"], request["pythons"])
    return {
        "agent": agent,
        "refusal": refusal,
        "facts": facts,
        "mount": _mount_of(root),
        "seen": observe(),
        "time": began_at,
        "took_s": time.monotonic() - began,
    }


def observe(system: Path = Path("/")) -> dict[str, Any]:
    """Return what is the same to ask on a host and on the login node.

    Args:
        system: root of the files that are read.
    """
    name = socket.gethostname()
    lookups = {
        "own_name": lambda: sorted({str(item[4][0]) for item in socket.getaddrinfo(name, None)}),
        "client": lambda: socket.gethostbyaddr(_client())[0] if _client() else None,
    }
    found = dict(zip(lookups, _all_within(list(lookups.values()), LOOKUP_S), strict=True))
    return {
        "hostname": name,
        "user": _user(),
        "uid": os.getuid(),
        "own_addresses": found["own_name"][0],
        "own_name_s": found["own_name"][1],
        "loopback_lines": loopback_lines(_text(system / "etc/hosts"), name),
        "client": _client(),
        "client_name_s": found["client"][1] if _client() else None,
        "limits": _limits(),
        "shm_mib": _shm(system),
        "cpus": len(os.sched_getaffinity(0)),
        "sshd": dict(sshd_options(system)),
        "loose": loose_files(Path(os.path.expanduser("~"))),
        "firewall": next((tool for tool in FIREWALLS if _which(tool)), None),
    }


def loopback_lines(hosts: str, name: str) -> list[str]:
    """Return the addresses of loopback that /etc/hosts gives a host's own name; not those of `localhost` itself."""
    own = {name, name.partition(".")[0]} - {"localhost", ""}
    found = []
    for line in hosts.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if (address.startswith("127.") or address == "::1") and any(
            item in own or item.partition(".")[0] in own for item in names
        ):
            found.append(address)
    return found


def sshd_options(system: Path = Path("/")) -> Iterator[tuple[str, str]]:
    """Yield options of the SSH server as its files say, which need not be the ones it was started with.

    The first word counts. What stands below `Match` is for some logins only, and is passed over.
    """
    seen: set[str] = set()
    for line in _sshd_lines(system, system / _SSHD_CONFIG.lstrip("/"), 0):
        key, _, value = line.partition(" ")
        if key.lower() in _SSHD_OPTIONS and key.lower() not in seen:
            seen.add(key.lower())
            yield key.lower(), value.strip()


def _sshd_lines(system: Path, file: Path, depth: int) -> Iterator[str]:
    for raw in _text(file).splitlines():
        line = re.sub(r"\s*=\s*|\s+", " ", raw.partition("#")[0].strip(), count=1)
        key, _, value = line.partition(" ")
        if key.lower() == "match":
            return
        if key.lower() == "include" and depth < 4:
            for pattern in value.split():
                below = pattern.lstrip("/") if pattern.startswith("/") else f"etc/ssh/{pattern}"
                for path in sorted(system.glob(below)):
                    yield from _sshd_lines(system, path, depth + 1)
        elif line:
            yield line


def loose_files(home: Path) -> list[dict[str, Any]]:
    """Return what of a home ssh or sshd refuses for its permissions, with the mode that mends it."""
    found = []
    places: list[tuple[Path, int, str]] = [(home, 0o022, "go-w"), (home / ".ssh", 0o022, "go-w")]
    for name in ("authorized_keys", "config"):
        places.append((home / ".ssh" / name, 0o022, "go-w"))
    with contextlib.suppress(OSError):
        for path in sorted((home / ".ssh").glob("id_*")):
            if path.suffix != ".pub":
                places.append((path, 0o077, "go="))
    for path, forbidden, change in places:
        with contextlib.suppress(OSError):
            info = path.stat()
            sticky = path == home and info.st_mode & stat.S_ISVTX
            if info.st_mode & forbidden and not sticky:
                found.append({"path": str(path), "mode": f"{stat.S_IMODE(info.st_mode):04o}", "change": change})
    return found


def _facts(root: Path, current: str, pythons: list[str]) -> dict[str, Any] | None:
    """Return what the installed agent says of the host; `None` where it does not run."""
    with contextlib.suppress(Refusal, OSError, ValueError):
        python = str(inspect_root(root) / "agents" / current / "bin" / "python")
        argv = [python, "-I", "-m", "dtagent", "facts", "--json", "--", *pythons]
        told = json.loads(run_tool("check-failed", argv, FACTS_TIMEOUT_S))
        return told if isinstance(told, dict) else None
    return None


def _mount_of(path: Path) -> str:
    """Return where the file system is mounted that holds a path, or would."""
    while not os.path.ismount(path) and path != path.parent:
        path = path.parent
    return str(path)


def _limits() -> dict[str, list[int | None]]:
    """Return soft and hard limits of what a login starts; `None` for none."""
    names = {
        "open_files": (resource.RLIMIT_NOFILE, 1),
        "processes": (resource.RLIMIT_NPROC, 1),
        "locked_memory_kib": (resource.RLIMIT_MEMLOCK, 1024),
    }
    return {
        name: [None if value == resource.RLIM_INFINITY else value // unit for value in resource.getrlimit(number)]
        for name, (number, unit) in names.items()
    }


def _shm(system: Path) -> list[int] | None:
    with contextlib.suppress(OSError):
        use = shutil.disk_usage(system / "dev/shm")
        return [use.total >> 20, use.free >> 20]
    return None


def _client() -> str:
    """Return the address that this login came from; empty where it came by no network."""
    return os.environ.get("SSH_CONNECTION", "").partition(" ")[0]


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _all_within(acts: list[Callable[[], _Value]], limit_s: float) -> list[tuple[_Value | None, float]]:
    """Do all at once; return what each gave, `None` for a failure or where it is late, and how long it took."""
    found: list[tuple[_Value | None, float]] = [(None, limit_s)] * len(acts)
    began = time.monotonic()

    def work(index: int) -> None:
        value = None
        with contextlib.suppress(OSError, UnicodeError):
            value = acts[index]()
        found[index] = value, time.monotonic() - began

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, began + limit_s - time.monotonic()))
    return list(found)


if __name__ == "__main__":
    sys.exit(main(globals()["stdin"], {"examine": examine}))
