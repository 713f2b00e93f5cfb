"""The error recorder under the user's own interpreter: scripts run as they do without it, and how they end is told."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from dtagent import payload
from dtagent.facts import interpreters

RUNNER = Path(payload.__file__).parent / "rank.py"


class Ended(NamedTuple):
    code: int
    """As subprocess tells it: negative for a signal."""
    out: str
    err: str
    failure: dict[str, Any] | None


def run(home: Path, *argv: str, python: str = sys.executable, **env: str) -> Ended:
    """Run a target as rank 3 of a job in `home`, from the directory `home/work`."""
    for name in ("logs", "ranks", "failures", "work"):
        (home / name).mkdir(exist_ok=True)
    done = subprocess.run(
        [python, str(RUNNER), *argv],
        cwd=home / "work",
        env={**os.environ, "RANK": "3", "DTTUI_LOGS": str(home / "logs"), "PYTHONUNBUFFERED": "1", **env},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"", b""), "what a rank prints goes into its own files"
    assert json.loads((home / "ranks" / "3.json").read_text())["pid"] > 0
    told = home / "failures" / "3.json"
    return Ended(
        done.returncode,
        (home / "logs" / "3.out").read_text(errors="replace"),
        (home / "logs" / "3.err").read_text(errors="replace"),
        json.loads(told.read_text()) if told.exists() else None,
    )


def script(home: Path, text: str | bytes, name: str = "train.py") -> str:
    path = home / "work" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_the_limit_on_memory_that_a_failing_rank_had_is_recorded(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); x = bytearray(1 << 40)"
    failure = run(tmp_path, script(tmp_path, limit)).failure
    assert failure is not None
    assert failure["error"] == "MemoryError"
    assert failure["memory_limit_mib"] <= 3 * 1024


WORKING = {
    "a guarded main": "def main(): print('done')\nif __name__ == '__main__': main()",
    "a type of its own, pickled": """
import dataclasses, pickle, typing
@dataclasses.dataclass
class Batch:
    size: 'int'
    next: 'typing.Optional[Batch]' = None
assert pickle.loads(pickle.dumps(Batch(3))) == Batch(3)
assert typing.get_type_hints(Batch)['next'] == typing.Optional[Batch]
print('done')""",
    "its own source": """
import inspect, sys
def forward(): return 1
assert 'return 1' in inspect.getsource(forward)
assert 'def forward' in inspect.getsource(sys.modules['__main__'])
print('done')""",
    "processes that are spawned": """
import multiprocessing, os
class Item:
    value = 7
def work(queue, item): queue.put((item.value, __name__, os.getpid()))
if __name__ == '__main__':
    context = multiprocessing.get_context('spawn')
    queue = context.Queue()
    child = context.Process(target=work, args=(queue, Item()))
    child.start()
    value, name, pid = queue.get()
    child.join()
    assert (value, name, child.exitcode) == (7, '__mp_main__', 0) and pid != os.getpid()
    print('done')""",
    "processes that are forked": """
import multiprocessing
def work(queue): queue.put(__name__)
context = multiprocessing.get_context('fork')
queue = context.Queue()
child = context.Process(target=work, args=(queue,))
child.start()
assert queue.get() == '__main__'
child.join()
print('done')""",
    "a worker that breaks and is survived": """
import multiprocessing
def work(): raise RuntimeError('in the worker')
if __name__ == '__main__':
    for kind in ('spawn', 'fork'):
        child = multiprocessing.get_context(kind).Process(target=work)
        child.start(); child.join()
        assert child.exitcode == 1
    print('done')""",
    "a forked child that breaks": """
import os
pid = os.fork()
if pid == 0: raise RuntimeError('in the child')
assert os.waitpid(pid, 0)[1] != 0
print('done')""",
    "a thread that breaks": """
import threading
thread = threading.Thread(target=lambda: 1 / 0)
thread.start(); thread.join()
print('done')""",
    "an exit handler that breaks": """
import atexit
atexit.register(lambda: 1 / 0)
print('done')""",
    "its arguments": """
import argparse, os, sys
parser = argparse.ArgumentParser()
parser.add_argument('--lr', type=float, default=0.5)
assert parser.prog == 'train.py' and parser.parse_args().lr == 0.5
assert os.path.isabs(__file__) and os.path.basename(__file__) == 'train.py'
assert sys.path[0] == os.path.dirname(__file__) and '__future__' not in sys.argv
print('done')""",
    "no inherited future": "def f(x: print('done')): pass",
    "an early exit": "import sys\nprint('done')\nsys.exit(0)",
}


@pytest.mark.parametrize("text", WORKING.values(), ids=WORKING.keys())
def test_a_script_runs_as_it_does_without_the_recorder(tmp_path: Path, text: str) -> None:
    ended = run(tmp_path, script(tmp_path, text))
    assert (ended.code, ended.out, ended.failure) == (0, "done\n", None), ended.err


FAILING = {
    "an exception": ("def step():\n    raise ValueError('bad batch')\nstep()", 1, "ValueError: bad batch"),
    "a syntax error": ("x = 1\ndef broken(:\n", 1, "SyntaxError: invalid syntax"),
    "a text as exit status": ("import sys\nsys.exit('no data set')", 1, "SystemExit: no data set"),
    "a number as exit status": ("import sys\nsys.exit(7)", 7, "SystemExit: 7"),
    "no memory": ("x = bytearray(1 << 62)", 1, "MemoryError"),
    "an interrupt": ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
    "an error without end": ("def f(): f()\nf()", 1, "RecursionError: maximum recursion depth exceeded"),
    "half a character": (r"raise ValueError('\ud800 lost')", 1, "ValueError: \ud800 lost"),
    "an exception that cannot be printed": (
        "class Odd(Exception):\n    def __str__(self): raise RuntimeError('no')\nraise Odd",
        1,
        "Odd: <exception str() failed>",
    ),
    "an exception at import": ("import missing_module_of_mine", 1, "ModuleNotFoundError: No module named"),
    "an exception after output without an end": ("print('half', end='')\n1 / 0", 1, "ZeroDivisionError"),
    "an assertion": ("assert 1 == 2, 'shapes differ'", 1, "AssertionError: shapes differ"),
}


@pytest.mark.parametrize(("text", "code", "error"), FAILING.values(), ids=FAILING.keys())
def test_how_a_script_failed_is_told(tmp_path: Path, text: str, code: int, error: str) -> None:
    path = script(tmp_path, text)
    ended = run(tmp_path, path)
    assert ended.failure is not None, ended.err
    assert ended.code == ended.failure["exit_code"] == code
    assert error in ended.failure["error"]
    assert (ended.failure["rank"], ended.failure["error"].startswith("SystemExit")) == (3, "sys.exit" in text)
    if ended.failure["traceback"] is None:
        assert "sys.exit" in text
    else:
        assert str(RUNNER) not in ended.failure["traceback"] + ended.err
        assert (path in ended.failure["traceback"]) or "MemoryError" in error
        assert ended.err.strip().splitlines()[-1].startswith(error.partition(":")[0])


def test_the_frame_that_raised_is_in_the_traceback_with_its_line(tmp_path: Path) -> None:
    failure = run(tmp_path, script(tmp_path, "def step():\n    raise ValueError('bad')\nstep()")).failure
    assert failure is not None
    assert "line 2, in step\n    raise ValueError('bad')\n" in failure["traceback"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs exception groups")
def test_all_exceptions_of_a_group_are_told(tmp_path: Path) -> None:
    text = "raise ExceptionGroup('loaders', [ValueError('first'), OSError('second')])"
    failure = run(tmp_path, script(tmp_path, text)).failure
    assert failure is not None
    assert "ValueError: first" in failure["traceback"]
    assert "OSError: second" in failure["traceback"]


def test_of_a_huge_message_and_traceback_the_telling_part_is_kept(tmp_path: Path) -> None:
    text = "def f(n):\n    exec('f(n - 1)' if n else 'raise ValueError(\"x\" * 10**6)')\nf(90)"
    failure = run(tmp_path, script(tmp_path, text)).failure
    assert failure is not None
    assert len(failure["error"]) <= 4096
    assert len(failure["traceback"]) <= 16384


def test_a_crash_in_compiled_code_leaves_a_traceback_of_the_script(tmp_path: Path) -> None:
    text = "import ctypes\ndef kernel():\n    ctypes.string_at(0)\nkernel()"
    ended = run(tmp_path, script(tmp_path, text))
    assert (ended.code, ended.failure) == (-11, None)
    assert "Segmentation fault" in ended.err
    assert "line 3 in kernel" in ended.err


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("print('done')", True),
        ("import sys\nsys.exit()", True),
        ("import os\nos._exit(0)", True),
        ("import os\nos._exit(3)", False),
        ("import sys\nsys.exit(3)", False),
        ("1 / 0", False),
        ("import os\nos.abort()", False),
        # What a child of the script does is not the end of the rank.
        ("import os\nif os.fork() == 0: os._exit(0)\nos.wait()\nos.abort()", False),
        ("import os, sys\nif os.fork() == 0: sys.exit(0)\nos.wait()\nos.abort()", False),
        ("import atexit, os\natexit.register(os.abort)", False),
    ],
)
def test_an_end_with_0_is_recorded_as_the_last_thing_that_happens(tmp_path: Path, text: str, is_told: bool) -> None:
    ended = run(tmp_path, script(tmp_path, text))
    told = tmp_path / "ranks" / "3.ended.json"
    assert (told.exists(), ended.code == 0) == (is_told, is_told), ended.err
    if is_told:
        assert json.loads(told.read_text())["time"] == pytest.approx(time.time(), abs=60)


def test_an_abrupt_exit_is_not_taken_for_anything_else(tmp_path: Path) -> None:
    ended = run(tmp_path, script(tmp_path, "import os\nos._exit(5)"))
    assert (ended.code, ended.failure) == (5, None)


def test_the_scripts_own_exception_hook_is_called(tmp_path: Path) -> None:
    text = "import sys\nsys.excepthook = lambda kind, error, trace: print('tracked', error)\nraise ValueError('bad')"
    ended = run(tmp_path, script(tmp_path, text))
    assert (ended.code, ended.out) == (1, "tracked bad\n")
    assert ended.failure is not None


def test_a_script_in_latin_1_runs(tmp_path: Path) -> None:
    text = "# -*- coding: latin-1 -*-\nassert 'caf\xe9' == 'caf\\u00e9'\nprint('done')\n".encode("latin-1")
    assert run(tmp_path, script(tmp_path, text)).out == "done\n"


def test_a_script_named_by_a_relative_path_finds_what_lies_beside_it(tmp_path: Path) -> None:
    script(tmp_path, "value = 3\n", "src/helper.py")
    script(tmp_path, "import helper, os\nos.chdir('/')\nopen(__file__).close()\nprint(helper.value)", "src/train.py")
    assert run(tmp_path, "src/train.py").out == "3\n"


def test_a_module_of_a_package_imports_its_siblings_and_spawns(tmp_path: Path) -> None:
    script(tmp_path, "", "pack/__init__.py")
    script(tmp_path, "value = 3\n", "pack/sibling.py")
    text = """
import multiprocessing, sys
from . import sibling
class Item:
    value = sibling.value
def work(queue, item): queue.put((__package__, item.value))
if __name__ == '__main__':
    assert sys.argv[1:] == ['--lr', '1']
    context = multiprocessing.get_context('spawn')
    queue = context.Queue()
    child = context.Process(target=work, args=(queue, Item()))
    child.start()
    print(queue.get())
    child.join()
"""
    script(tmp_path, text, "pack/train.py")
    ended = run(tmp_path, "-m", "pack.train", "--lr", "1")
    assert (ended.out, ended.failure) == ("('pack', 3)\n", None), ended.err


def test_a_package_with_a_main_runs_and_its_failure_has_no_frames_of_ours(tmp_path: Path) -> None:
    script(tmp_path, "", "pack/__init__.py")
    script(tmp_path, "raise ValueError('bad')", "pack/__main__.py")
    failure = run(tmp_path, "-m", "pack").failure
    assert failure is not None
    assert "runpy" not in failure["traceback"]
    assert "rank.py" not in failure["traceback"]
    assert failure["error"] == "ValueError: bad"


def test_a_module_and_a_script_that_are_not_there_are_told(tmp_path: Path) -> None:
    missing = run(tmp_path, "-m", "no_such_package").failure
    assert missing is not None
    assert "no_such_package" in missing["error"]
    absent = run(tmp_path, "nothing.py").failure
    assert absent is not None
    assert absent["error"].startswith("FileNotFoundError: ")


def test_a_full_disk_does_not_hide_the_real_error(tmp_path: Path) -> None:
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / "3.json").mkdir()  # So nothing can be put in its place.
    for name in ("logs", "ranks", "work"):
        (tmp_path / name).mkdir()
    env = {**os.environ, "RANK": "3", "DTTUI_LOGS": str(tmp_path / "logs")}
    path = script(tmp_path, "raise ValueError('bad')")
    done = subprocess.run([sys.executable, str(RUNNER), path], env=env, timeout=60, check=False)
    assert done.returncode == 1
    err = (tmp_path / "logs" / "3.err").read_text()
    assert "dttui: cannot write" in err
    assert err.endswith("ValueError: bad\n")


@pytest.mark.parametrize(
    "path", sorted(RUNNER.parent.rglob("*.py")), ids=lambda path: str(path.relative_to(RUNNER.parent))
)
def test_the_payload_is_in_the_language_of_the_oldest_interpreter(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=interpreters.OLDEST)


def _other_pythons() -> list[str]:
    """Return the interpreters of other versions on this machine."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*Path("/usr/bin").glob("python3.[0-9]*"), *root.glob("3.*/bin/python")]
    return sorted({str(path) for path in found if path.name.count("-") == 0 and shutil.which(str(path))})


@pytest.mark.parametrize("python", _other_pythons())
def test_other_versions_of_python_run_it_too(tmp_path: Path, python: str) -> None:
    told = subprocess.run([python, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=False)
    if told.returncode or ast.literal_eval(told.stdout.decode()) < interpreters.OLDEST:
        pytest.skip("older than any that is supported, or broken")
    ended = run(tmp_path, script(tmp_path, "def step():\n    raise ValueError('bad')\nstep()"), python=python)
    assert ended.failure is not None, ended.err
    assert (ended.code, ended.failure["error"]) == (1, "ValueError: bad")
    assert "in step" in ended.failure["traceback"]


def test_a_variable_that_is_too_long_to_start_a_process_with_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "variables").mkdir()
    for name, value in (("TF_CONFIG", "é" * 100_000), ("no_grpc_proxy", "10.0.0.1")):
        (tmp_path / "variables" / name).write_text(value, encoding="utf-8")
    (tmp_path / "work").mkdir()
    path = script(tmp_path, "import os\nprint(len(os.environ['TF_CONFIG']), os.environ['no_grpc_proxy'])")
    assert run(tmp_path, path, DTTUI_VARIABLES="TF_CONFIG no_grpc_proxy").out == "100000 10.0.0.1\n"


@pytest.mark.torch
def test_a_script_finds_the_collective_operators(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    uses = (
        "import sys, torch\n"
        "sys.path[:] = [place for place in sys.path if not place.endswith('/agent')]  # as on a host without dttui\n"
        "import dttui_collectives as c\n"
        "results = [c.AllReduceOperator(comm).all_reduce(torch.ones(2)) for comm in c.create_ring_topology(2)]\n"
        "print(results[0].tolist(), c.__file__)\n"
    )
    ended = run(tmp_path, script(tmp_path, uses))
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1] == f"[2.0, 2.0] {RUNNER.parent / 'collectives' / '__init__.py'}"


def test_without_torch_the_collective_operators_say_what_to_install(tmp_path: Path) -> None:
    uses = "import sys\nsys.modules['torch'] = None\nfrom dttui_collectives import AllReduceOperator\n"
    ended = run(tmp_path, script(tmp_path, uses))
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == "ModuleNotFoundError: dttui_collectives needs torch: pip install torch"
