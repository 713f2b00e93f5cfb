"""Asks the frameworks in a job's interpreter what they say of its settings, in a directory that is gone afterwards."""

from __future__ import annotations

import importlib.resources
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from dtagent.errors import RpcError
from dtagent.facts.interpreters import FloodError, how_it_ended, marked_object, resolve, run_bounded
from dtagent.protocol import sentences
from dtagent.protocol.probes import FrameworkAnswer, ValidationReply, ValidationRequest
from dtagent.protocol.rpc import ErrorCode

MAX_SECONDS = 60.0
_MARK = "dtagent-verdict "
_REQUEST = "verdict_request.json"
_DIRECTORY = "verdict-"
_LATE_S = 5.0
"""How long an interpreter outlives its limit that nobody ends: the daemon was killed meanwhile."""
_HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
"""A framework that is only imported takes no memory of the GPUs."""


def clear_up(root: Path) -> None:
    """Remove what a daemon left that was killed while it asked. Where one serves, it is not to be called again."""
    for path in root.glob(f"{_DIRECTORY}*"):
        shutil.rmtree(path, ignore_errors=True)


def judge(request: ValidationRequest, root: Path) -> ValidationReply:
    """Return what the frameworks say, or why they do not.

    Args:
        request: what they would be given.
        root: the agent's directory, on a local disk.

    Raises:
        RpcError: a file's name is none.
    """
    for name in request.files:
        if name in ("", ".", "..", _REQUEST) or "/" in name or "\0" in name:
            raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NO_FILE_NAME(name=repr(name)))
    start = [*request.prefix, os.path.expanduser(request.python)]
    if not request.prefix:
        found = resolve(request.python)
        if found.error is not None or found.executable is None:
            return ValidationReply(unseen=found.error)
        start = [found.executable]
    seconds = min(max(request.seconds, 1.0), MAX_SECONDS)
    script = str(importlib.resources.files("dtagent.payload") / "validation.py")
    with tempfile.TemporaryDirectory(prefix=_DIRECTORY, dir=root, ignore_cleanup_errors=True) as directory:

        def filled(text: str) -> str:
            return text.replace("${DIRECTORY}", directory).replace("${PAYLOAD}", os.path.dirname(script))

        for name, text in request.files.items():
            Path(directory, name).write_text(filled(text), encoding="utf-8")
        body = {
            "checks": request.checks,
            "argv": [filled(word) for word in request.argv],
            "world_size": request.world_size,
            "limit_s": seconds + _LATE_S,
        }
        Path(directory, _REQUEST).write_text(json.dumps(body), encoding="utf-8")
        own = {name: filled(value) for name, value in request.env.items()}
        argv = [*start, script, _MARK, _REQUEST]
        try:
            code, output, errors = run_bounded(argv, seconds, cwd=directory, env={**os.environ, **own, **_HIDDEN})
        except subprocess.TimeoutExpired:
            return ValidationReply(unseen=sentences.PYTHON_SILENT(python=request.python, seconds=f"{seconds:g}"))
        except FloodError:
            return ValidationReply(unseen=sentences.PYTHON_FLOODS(python=request.python))
        except (OSError, ValueError) as error:
            return ValidationReply(unseen=sentences.PYTHON_NOT_RUN(python=request.python, error=str(error)))
    answer = marked_object(output, _MARK)
    if answer is None:
        last = errors.strip().rpartition("\n")[2][:200]
        return ValidationReply(unseen=how_it_ended(request.python, code, last))
    return ValidationReply({name: _answer(told) for name, told in answer.items()})


def _answer(told: Any) -> FrameworkAnswer:
    texts = told if isinstance(told, dict) else {}
    refusal, unseen = (sentences.say(texts[key]) if texts.get(key) else None for key in ("refusal", "unseen"))
    return FrameworkAnswer(refusal, unseen)
