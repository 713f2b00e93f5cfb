"""Which processes are kept for warm starts, and when they go: with an interpreter that only says it has torch."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.attempts import warming
from dtagent.attempts.warming import MOST, WarmStarts
from dtagent.errors import RpcError
from dtagent.protocol.warm_start import WarmReply, WarmRequest, WarmState
from dtagent.system import proc_stat

from tests.processes import processes_like
from tests.waiting import wait_until

TELLS = """\
#!{python} -IS
import os, signal, sys
os.write(int(sys.argv[2]), {body!r})
signal.pause()
"""


@pytest.fixture
def kept() -> Iterator[WarmStarts]:
    starts = WarmStarts()
    yield starts
    starts.close()


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Directory that the interpreters have their modules from."""
    directory = tmp_path / "site-packages"
    directory.mkdir()
    return directory


def interpreter(directory: Path, packages: Path, name: str = "python") -> str:
    """Return a program that tells the daemon what `warm.py` under Python does, and stays."""
    told = {"torch": "2.13.0", "paths": [str(packages), *map(str, packages.rglob("*.py"))]}
    return telling(directory / name, json.dumps(told))


def telling(path: Path, said: str) -> str:
    """Return a program that tells the daemon something, and stays."""
    path.write_text(TELLS.format(python=sys.executable, body=f"{said}\n".encode()))
    path.chmod(0o700)
    return str(path)


def ready(kept: WarmStarts, python: str, **env: str) -> WarmReply:
    request = WarmRequest(python, env)
    wait_until(lambda: kept.ask(request).state is WarmState.READY, "it to be ready")
    return kept.ask(request)


def is_there(reply: WarmReply) -> bool:
    return reply.pid is not None and Path(f"/proc/{reply.pid}").exists()


def is_alive(reply: WarmReply) -> bool:
    found = proc_stat.read(reply.pid or 0)
    return found is not None and found.is_alive


def test_one_that_no_job_asks_for_ends_after_its_time(
    kept: WarmStarts, tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ready(kept, interpreter(tmp_path, packages))
    kept.expire()
    assert is_there(first)
    monkeypatch.setattr(warming, "IDLE_S", 0.0)
    kept.expire()
    assert not is_there(first)


def test_one_whose_packages_have_changed_is_not_used_again(kept: WarmStarts, tmp_path: Path, packages: Path) -> None:
    python = interpreter(tmp_path, packages)
    first = ready(kept, python)
    assert ready(kept, python).pid == first.pid
    os.utime(packages, ns=(1, 1))
    second = ready(kept, python)
    assert second.pid != first.pid
    assert not is_there(first)
    os.utime(packages, ns=(2, 2))
    kept.expire()
    assert not is_there(second)


def test_one_of_whose_modules_the_text_has_changed_is_not_used_again_nor_handed_over(
    kept: WarmStarts, tmp_path: Path, packages: Path
) -> None:
    """Of a module inside a package no directory on the path of modules tells."""
    module = packages / "torch" / "nn" / "functional.py"
    module.parent.mkdir(parents=True)
    module.write_text("SCALE = 1\n")
    python = interpreter(tmp_path, packages)
    first = ready(kept, python)
    was = module.stat()
    module.write_text("SCALE = 22\n")
    os.utime(module, ns=(was.st_atime_ns, was.st_mtime_ns))
    second = ready(kept, python)
    assert second.pid != first.pid
    module.unlink()
    with kept.hand_over(python) as end:
        assert "its packages have changed" in json.loads(end.recv(4096))["refused"]
    assert not is_there(second)


def test_another_value_of_what_torch_reads_when_imported_takes_its_place(
    kept: WarmStarts, tmp_path: Path, packages: Path
) -> None:
    python = interpreter(tmp_path, packages)
    first = ready(kept, python, TORCH_LOGS="", DTTUI_JOB_ID="one")
    assert ready(kept, python, TORCH_LOGS="", DTTUI_JOB_ID="two").pid == first.pid
    second = ready(kept, python, TORCH_LOGS="+dynamo")
    assert second.pid != first.pid
    assert not is_there(first)


@pytest.mark.parametrize(
    ("said", "reason"), [('{"error": "no torch"}', "no torch"), ("Segmentation fault", "it tells nonsense")]
)
def test_a_failure_is_told_once_and_the_next_who_asks_has_another_try(
    kept: WarmStarts, tmp_path: Path, packages: Path, said: str, reason: str
) -> None:
    python = telling(tmp_path / "python", said)
    told: list[WarmReply] = []

    def has_failed() -> bool:
        told.append(kept.ask(WarmRequest(python, {})))
        return told[-1].state is WarmState.FAILED

    wait_until(has_failed, "it to fail")
    assert reason in told[-1].reason
    interpreter(tmp_path, packages)  # As when torch is installed.
    assert kept.ask(WarmRequest(python, {})).state is not WarmState.FAILED
    ready(kept, python)


def test_one_that_was_killed_is_refused_once_and_made_anew(kept: WarmStarts, tmp_path: Path, packages: Path) -> None:
    python = interpreter(tmp_path, packages)
    first = ready(kept, python)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(first), "it to end")
    with kept.hand_over(python) as end:
        assert json.loads(end.recv(4096)) == {"refused": "it ended", "notice": {"code": "warm-ended", "values": {}}}
    assert ready(kept, python).pid != first.pid


def test_only_those_asked_for_last_stay(kept: WarmStarts, tmp_path: Path, packages: Path) -> None:
    found = [ready(kept, interpreter(tmp_path, packages, f"python{number}")) for number in range(MOST + 1)]
    assert [is_there(reply) for reply in found] == [False, *[True] * MOST]


def test_closing_ends_all_and_an_interpreter_that_is_not_there_is_refused(
    kept: WarmStarts, tmp_path: Path, packages: Path
) -> None:
    python = interpreter(tmp_path, packages)
    with pytest.raises(RpcError, match="there is no interpreter"):
        kept.ask(WarmRequest(f"{python}-none", {}))
    ready(kept, python)
    kept.close()
    assert not processes_like(python)


def test_one_whose_files_hang_is_not_forked_from_and_holds_nobody_up(
    kept: WarmStarts, tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = interpreter(tmp_path, packages)
    first = ready(kept, python)
    look, goes_on = warming.mark_of, threading.Event()

    def hang(path: str) -> tuple[int, ...] | None:
        goes_on.wait(60)
        return look(path)

    with monkeypatch.context() as patched:
        patched.setattr(warming, "LOOK_S", 0.05)
        patched.setattr(warming, "mark_of", hang)
        with kept.hand_over(python) as end:
            assert "does not answer" in json.loads(end.recv(4096))["refused"]
        kept.expire()
        told = kept.ask(WarmRequest(python, {}))
        assert (told.state, told.reason) == (WarmState.FAILED, "the file system of its packages does not answer")
        goes_on.set()
    assert ready(kept, python).pid == first.pid, "it is the same one once they answer again"
