"""What an attempt needs of this host besides GPUs and a port: paths, an interpreter, the way to the master.

A disk or a name service that hangs costs whoever asked, and nobody else: it is to be looked at under no lock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.preparation import PrepareRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.system.interfaces import interface_toward
from dtagent.system.readings import Readings

LIMIT_S = 8.0
"""How long all of it may take; an automounter takes its time."""
MOST_LOOKS = 128
"""Under way at once, of all who ask; those that hang count."""

_LOOKS = Readings(MOST_LOOKS)


@dataclass(frozen=True)
class HostRequirements:
    """What was found."""

    python: str = ""
    interface: str | None = None
    source_address: str | None = None
    refusal: RpcError | None = None
    """What an attempt cannot do without."""


def look(request: PrepareRequest) -> HostRequirements:
    """Look around. Blocks, for `LIMIT_S` seconds at most."""
    try:
        return _look(request)
    except RpcError as refusal:
        return HostRequirements(refusal=refusal)


def find_python(name: str) -> str:
    """Return the path of an interpreter. Raises RpcError REFUSED where there is none."""
    python = shutil.which(os.path.expanduser(name))
    if python is None:
        raise RpcError(ErrorCode.REFUSED, sentences.NO_INTERPRETER(python=name))
    return python


def _look(request: PrepareRequest) -> HostRequirements:
    paths = list(dict.fromkeys(request.required_paths))
    # All at once: one that hangs leaves the others their time.
    looks = [_begin(path, partial(os.path.exists, path)) for path in paths]
    way = _begin(f"way to {request.master_address}", partial(interface_toward, request.master_address))
    python: str | RpcError | None
    if request.is_behind_prefix:
        python = os.path.expanduser(request.python)
    else:
        python = _begin(f"interpreter {request.python}", partial(_interpreter, request.python))()
    found: tuple[str | None, str | None] | None = way()
    states = {path: wait() for path, wait in zip(paths, looks, strict=True)}
    missing = [path for path, exists in states.items() if exists is False]
    silent = [*(path for path, exists in states.items() if exists is None), *([request.python] * (python is None))]
    refusal = python if isinstance(python, RpcError) else None
    if missing:
        refusal = RpcError(ErrorCode.REFUSED, sentences.PATHS_MISSING(paths=", ".join(missing)))
    elif silent:
        refusal = RpcError(ErrorCode.REFUSED, sentences.PATHS_SILENT(paths=", ".join(silent)))
    elif found is None:
        refusal = refusal or RpcError(ErrorCode.REFUSED, sentences.NAMES_SILENT(address=request.master_address))
    return HostRequirements(python if isinstance(python, str) else "", *(found or (None, None)), refusal)


def _begin(kind: str, act: Callable[[], Any]) -> Callable[[], Any]:
    """Begin one look. Raises RpcError BUSY where it cannot be."""
    wait = _LOOKS.begin(kind, act, LIMIT_S)
    if wait is None:
        raise RpcError(ErrorCode.BUSY, sentences.NO_MORE_LOOKS())
    return wait


def _interpreter(name: str) -> str | RpcError:
    try:
        return find_python(name)
    except RpcError as refusal:
        return refusal
