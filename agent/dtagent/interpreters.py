"""What Python interpreters on this host offer to training, told by each itself without importing any of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from typing import Any

from dtagent.protocol.telemetry import PythonFacts

TIMEOUT_S = 10.0
MOST_AT_ONCE = 16

OLDEST = (3, 8)
"""The first version with importlib.metadata, and the oldest that any PyTorch dttui launches runs on."""

PACKAGES = (
    "torch",
    "torchvision",
    "torchtitan",
    "numpy",
    "deepspeed",
    "megatron-core",
    "transformer-engine",
    "flash-attn",
    "apex",
    "horovod",
    "tensorflow",
    "tf-keras",
    "keras",
    "jax",
    "accelerate",
    "transformers",
    "datasets",
    "lightning",
    "pytorch-lightning",
    "triton",
    "mpi4py",
    "nvidia-nccl-cu11",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cuda-runtime",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
)
"""Distributions whose presence and version matter to a job."""

_MARK = "dtagent-python "

# Runs under interpreters of any age. Not -I: that hides the user's site-packages and PYTHONPATH, which jobs do see.
# What -I is wanted for, a json.py in the current directory taking the place of the standard library's, is prevented by
# dropping the current directory from sys.path before the first import from a file (-P does it only from 3.11 on).
_SNIPPET = """\
import sys
sys.path[:] = [entry for entry in sys.path if entry not in ("", ".")]
import json
found = {}
try:
    from importlib import metadata
except ImportError:
    metadata = None
for name in sys.argv[2:] if metadata else []:
    try:
        version = metadata.version(name)
    except (ImportError, OSError, ValueError, LookupError, TypeError, AttributeError):
        version = None
    if version:
        found[name] = str(version)
body = {"version": list(sys.version_info[:3]), "executable": sys.executable, "packages": found}
sys.stdout.write("\\n" + sys.argv[1] + json.dumps(body) + "\\n")
"""


def examine_all(pythons: list[str], timeout_s: float = TIMEOUT_S) -> list[PythonFacts]:
    """Examine interpreters side by side; the answers are in the order asked for."""
    answers: dict[str, PythonFacts] = {}

    def ask(path: str) -> None:
        answers[path] = examine(path, timeout_s)

    # Daemon threads and a deadline: on a file system that hangs, even looking whether a file is there never returns.
    asked = list(dict.fromkeys(pythons))[:MOST_AT_ONCE]
    threads = [threading.Thread(target=ask, args=(path,), name="python-facts", daemon=True) for path in asked]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s + 2.0
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = {path: _unusable(path, "cannot be reached: its file system does not answer") for path in asked}
    too_many = f"was not examined: at most {MOST_AT_ONCE} interpreters can be asked about at once"
    return [answers.get(path) or silent.get(path) or _unusable(path, too_many) for path in pythons]


def examine(path: str, timeout_s: float = TIMEOUT_S) -> PythonFacts:
    """Run one interpreter and return what it says of itself; why it cannot be used is in `error`.

    Args:
        path: an absolute path, `~/…`, or a bare name looked up on PATH.
        timeout_s: after which it, and all it started, is killed.
    """
    found = _resolve(path)
    if found.error is not None or found.executable is None:
        return found
    try:
        code, output, errors = _run([found.executable, "-c", _SNIPPET, _MARK, *PACKAGES], timeout_s)
    except subprocess.TimeoutExpired:
        return _unusable(path, f"gave no answer within {timeout_s:g} s")
    except OSError as error:
        return _unusable(path, f"cannot be run: {error.strerror or error}")
    body = _body(output)
    if body is None:
        last = errors.strip().rpartition("\n")[2][:200]
        if code:
            ended = f"was ended by {_signal_name(-code)}" if code < 0 else f"exits with {code}"
            return _unusable(path, f"{ended}: {last}" if last else ended)
        return _unusable(path, "does not answer as Python does")
    version = tuple(int(part) for part in body["version"])
    too_old = None
    if version < OLDEST:
        too_old = f"{path} is Python {_dotted(version)}; {_dotted(OLDEST)} is the oldest that can be used"
    return PythonFacts(
        path=path,
        executable=body["executable"] or found.executable,
        version=_dotted(version),
        packages=body["packages"],
        error=too_old,
    )


def _resolve(path: str) -> PythonFacts:
    expanded = os.path.expanduser(path)
    if not path or "\0" in path:
        return _unusable(path, "is not a path")
    if "/" not in expanded:
        where = shutil.which(expanded)
        return PythonFacts(path, where, None) if where else _unusable(path, "is not on this host's PATH")
    if not os.path.isabs(expanded):
        return _unusable(path, "is a relative path; give an absolute one, or a name on PATH")
    if not os.path.exists(expanded):
        return _unusable(path, "is not there")
    if os.path.isdir(expanded):
        return _unusable(path, "is a directory")
    if not os.access(expanded, os.X_OK):
        return _unusable(path, "is not executable")
    return PythonFacts(path, expanded, None)


def _run(argv: list[str], timeout_s: float) -> tuple[int, str, str]:
    """Return exit code (negative: a signal), stdout and stderr."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except BaseException:
            # The interpreter may be a wrapper script, whose children would live on.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output.decode(errors="replace"), errors.decode(errors="replace")


def _body(output: str) -> dict[str, Any] | None:
    """Find the snippet's line among what a sitecustomize or a wrapper may print."""
    for line in reversed(output.split("\n")):
        if line.startswith(_MARK):
            try:
                body = json.loads(line[len(_MARK) :])
            except ValueError:
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


def _unusable(path: str, reason: str) -> PythonFacts:
    return PythonFacts(path=path, executable=None, version=None, error=f"{path or 'an empty name'} {reason}")
