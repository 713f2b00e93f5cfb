"""A process that has imported torch, and forks for each Python that a test wants to have it: the import takes 1.5 s."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

# What is frozen is not looked through at the end of each fork, which would take it twice as long as its work.
_FORKSERVER = """
import gc, json, os, sys
import torch.distributed, torch.distributed.run
gc.freeze()
print("ready", flush=True)
for line in sys.stdin:
    wanted = json.loads(line)
    if isinstance(wanted, int):
        print(os.waitstatus_to_exitcode(os.waitpid(wanted, 0)[1]), flush=True)
        continue
    if (fork := os.fork()) == 0:
        os.setsid()
        print(os.getpid(), flush=True)
        os.chdir(wanted["cwd"])
        os.environ.clear()
        os.environ.update(wanted["env"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(os.path.join(wanted["said"], name), os.O_WRONLY | os.O_CREAT), descriptor)
        sys.argv, sys.path[0] = wanted["argv"], wanted["cwd"]
        exec(wanted["code"], {"__name__": "__main__"})
        raise SystemExit
"""
SCRIPT = "import runpy, sys; runpy.run_path(sys.argv[0], run_name='__main__')"
"""What `python SCRIPT ...` does."""
TORCHRUN = "import runpy; runpy.run_module('torch.distributed.run', run_name='__main__')"
"""What `python -m torch.distributed.run ...` does; the ranks that it starts are processes like any."""


class Fork:
    """A program under way."""

    def __init__(self, stem: TorchStem, pid: int, argv: Sequence[str], said: Path) -> None:
        self.pid = pid
        self.is_over = False
        self._stem, self._argv, self._said = stem, argv, said

    def finish(self, timeout_s: float = 90.0) -> subprocess.CompletedProcess[str]:
        """Wait for its end, and return what it said."""
        status = self._stem.wait(self.pid, timeout_s)
        self.is_over = True
        out, err = ((self._said / name).read_text() for name in ("out", "err"))
        return subprocess.CompletedProcess(list(self._argv), status, out, err)


class TorchStem:
    """Runs programs, each as if it were the first of a process with torch and one thread."""

    def __init__(self) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        argv = [sys.executable, "-c", _FORKSERVER]
        self._process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._line(120.0) == "ready"

    def run(
        self, code: str, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float = 90.0
    ) -> subprocess.CompletedProcess[str]:
        """Run code to its end with its arguments, the first of which is its name; leave nothing of it behind."""
        with self.started(code, argv, cwd=cwd, env=env) as fork:
            return fork.finish(timeout_s)

    @contextlib.contextmanager
    def started(self, code: str, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Iterator[Fork]:
        """Have code run, beside others if need be; nothing of it is left afterwards."""
        with tempfile.TemporaryDirectory(prefix="dttui-") as said:
            self._send({"code": code, "argv": list(argv), "cwd": str(cwd), "env": dict(env), "said": said})
            fork = Fork(self, int(self._line(90.0)), argv, Path(said))
            try:
                yield fork
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(fork.pid, signal.SIGKILL)
                if not fork.is_over:
                    self.wait(fork.pid, 90.0)

    def wait(self, pid: int, timeout_s: float) -> int:
        """Return the exit code of a program; until then no other can be started."""
        self._send(pid)
        return int(self._line(timeout_s))

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def _send(self, wanted: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wanted).encode() + b"\n")
        self._process.stdin.flush()

    def _line(self, timeout_s: float) -> str:
        assert self._process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            readable, _writable, _failed = select.select([self._process.stdout], [], [], timeout_s)
            assert readable, f"no answer in {timeout_s:g} s"
            byte = os.read(self._process.stdout.fileno(), 1)
            assert byte, "the process with torch is gone"
            line += byte
        return line.decode().strip()


@pytest.fixture(scope="session")
def torch_forkserver() -> Iterator[TorchStem]:
    """One for all tests of this worker; skipped without torch."""
    pytest.importorskip("torch")
    made = TorchStem()
    yield made
    made.end()
