"""Warm starts with real processes: what is forked runs as what is executed, and what cannot be forked is executed."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conversation import Conversation, processes_with
from tests.waiting import wait_until

pytestmark = pytest.mark.torch

ENV = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
PROBE = """
import json, os, pickle, random, resource, signal, sys, torch
class Held: pass
pickle.loads(pickle.dumps(Held()))
print(json.dumps({
    "argv": sys.argv, "orig": [os.path.basename(part) for part in sys.orig_argv][:3], "path": sys.path,
    "cwd": os.getcwd(),
    "file": __file__, "name": __name__, "env": dict(os.environ), "fds": sorted(os.listdir("/proc/self/fd"))[:3],
    "open": len(os.listdir("/proc/self/fd")), "flags": list(sys.flags), "umask": os.umask(0o77),
    "limits": resource.getrlimit(resource.RLIMIT_NOFILE), "torch": torch.__version__,
    "threads": torch.get_num_threads(),
    "signals": [str(signal.getsignal(n)) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP)],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "leads": os.getsid(0) == os.getpid(),
    "stdin": os.readlink("/proc/self/fd/0"), "buffered": sys.stdout.line_buffering, "encoding": sys.stdout.encoding,
    "cmdline": open("/proc/self/cmdline").read(), "comm": open("/proc/self/comm").read(),
    "shown": sorted(open("/proc/self/environ").read().strip(chr(0)).split(chr(0))),
    "main": sys.modules["__main__"].__dict__ is globals(),
}))
"""


STUB = {
    "__init__.py": "import platform\nfrom torch import cuda\n__version__ = 'stub'\n"
    "class default_generator: seed = staticmethod(lambda: None)\n",
    "cuda.py": "def is_initialized(): return False\n",
    "distributed/__init__.py": "",
    "distributed/run.py": "",
}
"""What a template takes for torch, where a test is not about torch but about the template."""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(tmp_path / "root") as conversation:
        yield conversation


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    """An agent that has torch imported."""
    with Conversation(tmp_path_factory.mktemp("warm") / "root") as conversation:
        ready(conversation)
        yield conversation


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH with a torch that is imported at once."""
    path = tmp_path_factory.mktemp("stub")
    for name, text in STUB.items():
        (path / "torch" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "torch" / name).write_text(text)
    return str(path)


def ready(agent: Conversation, **env: str) -> Any:
    """Wait until there is a process to fork."""
    request = {"python": sys.executable, "env": {**ENV, **env}}

    def answer() -> Any:
        reply = agent.call("warm", request)
        return reply if reply["state"] != "starting" else None

    return wait_until(answer, "torch to be imported", 60)


def torchrun(agent: Conversation, job: str, script: Path, *args: str, **more: Any) -> Any:
    """Run a script by torchrun as a job does; return the status at its end."""
    launch(agent, job, script, *args, **more)
    return agent.end_of(job)


def rank(agent: Conversation, job: str, script: Path, *args: str, **more: Any) -> Any:
    """Run a script as a rank without a torchrun; return the status at its end."""
    return torchrun(agent, job, script, *args, by_torchrun=False, **more)


def launch(
    agent: Conversation,
    job: str,
    script: Path,
    *args: str,
    warm_start: bool = True,
    ranks: int = 1,
    cwd: Path | None = None,
    by_torchrun: bool = True,
    **env: str,
) -> Any:
    told = agent.prepare(job)
    mark = {"DTTUI_JOB_ID": job, "DTTUI_ATTEMPT": "0", "DTTUI_NODE_RANK": "0"}
    launcher = [
        f"{told['payload']}/torchrun.py", "--nnodes=1", f"--nproc-per-node={ranks}", "--node-rank=0",
        "--master-addr=127.0.0.1", f"--master-port={told['master_port']}", "--max-restarts=0", "--",
    ]  # fmt: skip
    argv = [told["python"], *launcher * by_torchrun, f"{told['payload']}/rank.py", str(script), *args]
    if not by_torchrun:
        mark["RANK"] = "0"
    process = {
        "name": "launcher", "argv": argv, "cwd": str(cwd or script.parent), "warm_start": warm_start,
        "env": {**ENV, **mark, "DTTUI_LOGS": f"{told['directory']}/logs", **env},
    }  # fmt: skip
    key = {"job_id": job, "attempt": 0}
    return agent.call(
        "start", {"key": key, "node_rank": 0, "processes": [process], "ranks": list(range(ranks)), "grace_s": 5.0}
    )


def script(directory: Path, text: str, name: str = "train.py") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def log(agent: Conversation, job: str, name: str = "0.out") -> str:
    return (agent.root / f"jobs/{job}/0/logs/{name}").read_text()


def test_a_forked_rank_finds_what_an_executed_one_does(warm: Conversation, tmp_path: Path) -> None:
    probe = script(tmp_path, PROBE)
    found = {}
    for job, warm_start in (("plain", False), ("forked", True)):
        status = torchrun(warm, job, probe, "--steps", "3", warm_start=warm_start, EXTRA="ü")
        assert (status["exits"][0]["exit_code"], status["warnings"]) == (0, []), log(warm, job, "launcher.err")
        found[job] = json.loads(log(warm, job))
        assert _stems(warm, job) == (1 if warm_start else 0)
    plain, forked = (_without_names(found[job], job) for job in ("plain", "forked"))
    assert forked == plain
    assert forked["main"] is True


def _without_names(told: dict[str, Any], job: str) -> dict[str, Any]:
    """Leave out what no two attempts have in common."""
    text = json.dumps(told).replace(f"jobs/{job}/", "jobs/JOB/").replace(f"DTTUI_JOB_ID={job}", "DTTUI_JOB_ID=JOB")
    text = re.sub(r'(MASTER_PORT"?[=:] ?"?)\d+', r"\1PORT", text)
    text = re.sub(r"(TORCHELASTIC_RUN_ID|TORCHELASTIC_ERROR_FILE)([\"=: ]+)[^\"]+", r"\1\2X", text)
    body: dict[str, Any] = json.loads(text)
    body["env"].pop("DTTUI_JOB_ID")
    body["shown"] = sorted(body["shown"])
    return body


def _stems(agent: Conversation, job: str) -> int:
    return (agent.root / f"jobs/{job}/0/journal.jsonl").read_text().count('"event":"stem"')


def test_forked_ranks_draw_numbers_of_their_own_and_report_how_they_end(warm: Conversation, tmp_path: Path) -> None:
    text = (
        "import json, os, random, sys, time, torch, numpy\n"
        "print(torch.initial_seed(), random.random(), numpy.random.random(), torch.rand(1).item())\n"
        "print(torch.zeros(()).numpy(), file=sys.stderr)\n"
        "if os.environ['RANK'] == '1':\n"
        "    home = os.path.dirname(os.environ['DTTUI_LOGS'])\n"
        "    while not os.path.exists(home + '/ranks/0.json'): time.sleep(0.02)\n"
        "    other = json.load(open(home + '/ranks/0.json'))['pid']\n"
        "    while os.path.exists(f'/proc/{other}'): time.sleep(0.02)  # Else its launcher ends it for our failure.\n"
        "    raise ValueError('of rank 1')\n"
    )
    status = torchrun(warm, "numbers", script(tmp_path, text), ranks=2)
    numbers = [log(warm, "numbers", f"{rank}.out").split() for rank in (0, 1)]
    assert all(one != other for one, other in zip(*numbers, strict=True)), numbers
    assert [item["exit_code"] for item in status["exits"] if item["name"] == "launcher"] == [1]
    (failure,) = status["failures"]
    assert (failure["rank"], failure["exit_code"], failure["error"]) == (1, 1, "ValueError: of rank 1")
    assert "train.py" in failure["traceback"]
    assert "warm.py" not in log(warm, "numbers", "1.err")
    assert status["usage"]["user_cpu_s"] > 0
    assert processes_with("DTTUI_JOB_ID=numbers") == []


@pytest.mark.parametrize(
    ("end", "told"),
    [("sys.exit(7)", (7, None)), ("os.kill(os.getpid(), 9)", (None, signal.SIGKILL))],
)
def test_exit_codes_and_signals_of_a_forked_rank_are_told(
    warm: Conversation, tmp_path: Path, end: str, told: tuple[int | None, int | None]
) -> None:
    job = f"end-{told[0] or told[1]:d}"
    status = torchrun(warm, job, script(tmp_path, f"import os, sys\n{end}\n"))
    assert [(item.get("exit_code"), item.get("signal")) for item in status["failures"]] == [told]


def test_a_module_runs_forked_and_a_spawned_worker_finds_the_script(warm: Conversation, tmp_path: Path) -> None:
    text = (
        "import multiprocessing, sys\ndef double(value): return 2 * value\n"
        "if __name__ == '__main__':\n"
        " with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(double, [21]), sys.argv[1:])\n"
    )
    script(tmp_path, text, "work.py")
    (tmp_path / "go").mkdir()
    script(
        tmp_path / "go", "import os, sys\nprint(sys.argv[1:], sys.path[0] == os.getcwd(), __package__)", "__main__.py"
    )
    assert rank(warm, "spawn", tmp_path / "work.py", "x")["exits"][0]["exit_code"] == 0
    assert log(warm, "spawn") == "[42] ['x']\n"
    rank(warm, "module", Path("-m"), "go", "y", cwd=tmp_path)
    assert log(warm, "module") == "['y'] True go\n"


def test_what_cannot_be_forked_is_executed_and_the_reason_told(agent: Conversation, stub: str, tmp_path: Path) -> None:
    """A variable that torch reads when it is imported, and a module beside the script that hides a loaded one."""
    ready(agent, PYTHONPATH=stub)
    text = "import os, platform\nprint(os.environ.get('TORCH_LOGS_OUT'), hasattr(platform, 'OWN'))\n"
    status = rank(agent, "logs", script(tmp_path, text), PYTHONPATH=stub, TORCH_LOGS_OUT="/dev/null")
    assert log(agent, "logs") == "/dev/null False\n"
    assert any("TORCH_LOGS_OUT had another value" in text for text in status["warnings"])
    script(tmp_path, "OWN = 1\n", "platform.py")
    status = rank(agent, "shadow", tmp_path / "train.py", PYTHONPATH=stub)
    assert log(agent, "shadow") == "None True\n"
    assert any("platform" in text for text in status["warnings"])
    assert status["exits"][0]["exit_code"] == 0


def test_without_a_process_to_fork_the_job_starts_as_usual_with_a_note(agent: Conversation, tmp_path: Path) -> None:
    job = script(tmp_path, "print('ran')\n")
    status = rank(agent, "absent", job)
    assert (log(agent, "absent"), status["exits"][0]["exit_code"]) == ("ran\n", 0)
    assert status["warnings"] == ["no warm start: no process with torch imported is there"]


def test_a_module_edited_inside_a_package_is_imported_anew_by_the_next_job(agent: Conversation, tmp_path: Path) -> None:
    path = tmp_path / "packages"
    for name, text in STUB.items():
        (path / "torch" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "torch" / name).write_text(text)
    inner = path / "torch" / "distributed" / "run.py"
    ready(agent, PYTHONPATH=str(path))
    inner.write_text("SAYS = 'edited'\n")
    job = script(tmp_path, "import torch.distributed.run as run\nprint(getattr(run, 'SAYS', 'old'))\n")
    status = rank(agent, "edited", job, PYTHONPATH=str(path))
    assert (log(agent, "edited"), status["exits"][0]["exit_code"]) == ("edited\n", 0)
    assert status["warnings"] == ["no warm start: its packages have changed since torch was imported"]
    ready(agent, PYTHONPATH=str(path))
    assert rank(agent, "anew", job, PYTHONPATH=str(path))["warnings"] == []
    assert log(agent, "anew") == "edited\n"


def test_a_process_to_fork_that_hangs_delays_the_job_and_starts_nothing_later(
    agent: Conversation, stub: str, tmp_path: Path
) -> None:
    os.kill(template := ready(agent, PYTHONPATH=stub)["pid"], signal.SIGSTOP)
    job = script(tmp_path, "import os\nopen('runs', 'a').write('one\\n')\n")
    status = rank(agent, "hung", job, PYTHONPATH=stub)
    assert status["exits"][0]["exit_code"] == 0
    assert any("has not answered" in text for text in status["warnings"])
    os.kill(template, signal.SIGCONT)
    assert rank(agent, "after", job, PYTHONPATH=stub)["warnings"] == []
    assert _stems(agent, "after") == 1
    assert (tmp_path / "runs").read_text() == "one\none\n"


def test_the_death_of_agent_and_template_leaves_a_job_running_and_a_stop_ends_all_of_it(
    stub: str, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    text = (
        "import os, signal, subprocess, sys, time\n"
        "subprocess.Popen(['env', '-i', 'setsid', 'sleep', '325'])\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), os._exit(0)))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(0.05)\n"
    )
    with Conversation(root, keep_daemon=True) as agent:
        template = ready(agent, PYTHONPATH=stub)["pid"]
        launch(agent, "alone", script(tmp_path, text), by_torchrun=False, PYTHONPATH=stub)
        wait_until(lambda: (root / "jobs/alone/0/logs/0.out").exists() and "ready" in log(agent, "alone"), "it", 30)
        forkserver = _stem_of(root / "jobs/alone/0")
        daemon = agent.call("hello", {"versions": [1]})["pid"]
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: _command(template) == "", "the template to end with its daemon", 30)
    with Conversation(root) as agent:
        assert agent.status("alone")["state"] == "running"
        assert processes_with("DTTUI_JOB_ID=alone") != []
        agent.stop("alone")
        status = agent.end_of("alone")
        assert (status["state"], log(agent, "alone")) == ("ended", "ready\nsaved\n")
        assert status["usage"]["user_cpu_s"] > 0
    assert processes_with("DTTUI_JOB_ID=alone") == []
    assert not [pid for pid in _all() if _command(pid) == "sleep 325"]
    assert _command(forkserver) == ""


@pytest.mark.parametrize("victim", ["supervisor", "stem"])
def test_nothing_is_left_of_a_forked_job_whose_keepers_are_killed(
    warm: Conversation, tmp_path: Path, victim: str
) -> None:
    job = f"kill-{victim}"
    text = (
        "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '326'])\n"
        "print('ready', flush=True)\ntime.sleep(300)\n"
    )
    launch(warm, job, script(tmp_path, text))
    home = warm.root / f"jobs/{job}/0"
    wait_until(lambda: (home / "logs/0.out").exists() and "ready" in log(warm, job), "it to run", 30)
    told = json.loads((home / "supervisor.json").read_text())["pid"] if victim == "supervisor" else _stem_of(home)
    os.kill(told, signal.SIGKILL)
    status = warm.end_of(job)
    assert status["state"] == ("lost" if victim == "supervisor" else "ended")
    assert processes_with(f"DTTUI_JOB_ID={job}") == []
    assert not [pid for pid in _all() if _command(pid) == "sleep 326"]


def test_one_process_serves_all_jobs_and_tells_its_memory(warm: Conversation) -> None:
    first = ready(warm)
    assert (first["state"], bool(first["torch"])) == ("ready", True)
    assert 50 < first["memory_mib"] < 2000
    assert ready(warm)["pid"] == first["pid"]


def test_a_python_without_torch_is_named_as_the_reason(agent: Conversation, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch today')")
    reply = ready(agent, PYTHONPATH=str(tmp_path))
    assert (reply["state"], "no torch today" in reply["reason"]) == ("failed", True)


def _stem_of(home: Path) -> int:
    lines = [line.partition(" ")[2] for line in (home / "journal.jsonl").read_text().splitlines()]
    return int(next(json.loads(line)["pid"] for line in lines if '"event":"stem"' in line))


def _all() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _command(pid: int) -> str:
    """Return a process's command line; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
