"""Puts tools into an agent's root, and says which are there. A part of what dttui pushes to a host.

A tool is one program, `tools/NAME`; `tools/NAME.json` says which it is. It is not of any version of the agent's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from dttui.fleet.deployment.frame_program import receive, run_tool, say
from dttui.fleet.deployment.root_program import Refusal

TOOLS = "tools"
RUN_TIMEOUT_S = 30


def tools_of(place: Path) -> list[dict[str, Any]]:
    """Return the tools of a root: name, version and wheel of each, and whether its file is as it was unpacked."""
    found = []
    for path in sorted((place / TOOLS).glob("*.json")):
        version, wheel, is_whole = "", "", False
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(path.read_text())
            version, wheel = str(told["version"]), str(told["wheel"])
            is_whole = hashlib.sha256(path.with_suffix("").read_bytes()).hexdigest() == told["sha256"]
        found.append({"name": path.stem, "version": version, "wheel": wheel, "is_whole": is_whole})
    return found


def bring(place: Path, files: list[dict[str, Any]], stream: BinaryIO) -> None:
    """Unpack the wheels that come by `stream`, see that what is in them runs, and put it in place of what was there."""
    tools = place / TOOLS
    tools.mkdir(exist_ok=True)
    for left in tools.glob(".new-*"):
        shutil.rmtree(left, ignore_errors=True)
    staging = tools / f".new-{os.getpid()}"
    try:
        say(step="receive")
        receive(staging, files, stream)
        say(step="unpack")
        for file in files:
            _unpack(staging, file)
        for file in files:
            # Whoever looks between the two finds a tool that is not whole, and the next deployment mends it.
            for name in (file["tool"], f"{file['tool']}.json"):
                (staging / name).replace(tools / name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        with contextlib.suppress(OSError):
            tools.rmdir()


def _unpack(staging: Path, file: dict[str, Any]) -> None:
    name, program = file["tool"], staging / file["tool"]
    with zipfile.ZipFile(staging / file["name"]) as wheel:
        (inside,) = (entry for entry in wheel.namelist() if entry.endswith(f".data/scripts/{name}"))
        _write(program, wheel.read(inside))
    program.chmod(0o700)
    try:
        run_tool("tool-failed", [str(program), "--version"], RUN_TIMEOUT_S)
    except Refusal as refusal:
        raise Refusal(refusal.code, name=name, **refusal.details) from refusal
    sha256 = hashlib.sha256(program.read_bytes()).hexdigest()
    record = {"version": file["version"], "wheel": file["sha256"], "sha256": sha256}
    _write(staging / f"{name}.json", json.dumps(record).encode())


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
