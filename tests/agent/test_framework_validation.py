"""What a host says of a job's settings by the frameworks there: torchrun's own parser, and odd interpreters."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from dtagent.checks.checks import Checks
from dtagent.checks.validation import judge
from dtagent.errors import RpcError
from dtagent.payload import validation as payload
from dtagent.protocol.probes import FrameworkAnswer, ValidationReply, ValidationRequest

TORCHRUN = [sys.executable, "${PAYLOAD}/torchrun.py", "--nnodes=2", "--nproc-per-node=2", "--node-rank=1"]
TORCHRUN += ["--master-addr=10.0.0.1", "--master-port=29500", "--", "${PAYLOAD}/rank.py", "train.py"]


def fake(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_torchruns_own_parser_reads_what_dttui_writes_and_refuses_in_its_own_words(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    checks = ["torchrun", "accelerate", "tensorflow", "nobodys"]
    good = judge(ValidationRequest(sys.executable, checks, TORCHRUN, seconds=60), root)
    assert good.verdicts["torchrun"] == FrameworkAnswer()
    assert "accelerate" not in good.verdicts
    assert (good.verdicts["tensorflow"].unseen or "").startswith("ModuleNotFoundError")
    assert good.verdicts["nobodys"].unseen == "this agent knows no check nobodys"
    words = [*TORCHRUN[:2], "--no-such-thing", *TORCHRUN[2:]]
    bad = judge(ValidationRequest(sys.executable, ["torchrun"], words, seconds=60), root)
    assert "--no-such-thing" in (bad.verdicts["torchrun"].refusal or "")
    assert list(root.iterdir()) == []


def test_a_package_that_brings_a_check_of_its_own_is_asked(tmp_path: Path) -> None:
    (tmp_path / "seventh.py").write_text(
        "import os\n"
        "def check(request):\n"
        "    print('noise')\n"
        "    text = open('seven.cfg').read()\n"
        "    return f\"{text} {request['world_size']} {os.environ['CUDA_VISIBLE_DEVICES']!r}\"\n"
        "def fine(request):\n    return None\n"
    )
    request = ValidationRequest(
        sys.executable,
        ["seventh:check", "seventh:fine", "seventh:missing"],
        env={"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"},
        files={"seven.cfg": "in ${DIRECTORY}"},
        world_size=14,
    )
    verdicts = judge(request, tmp_path).verdicts
    assert (verdicts["seventh:check"].refusal or "").startswith(f"in {tmp_path}{os.sep}verdict-")
    assert (verdicts["seventh:check"].refusal or "").endswith(" 14 ''")
    assert verdicts["seventh:fine"] == FrameworkAnswer()
    assert (verdicts["seventh:missing"].unseen or "").startswith("AttributeError")


@pytest.mark.parametrize(
    ("backend", "gloo", "nccl", "refusal"),
    [
        ("nccl", True, 21805, None),
        ("gloo", True, 0, None),
        ("nccl", True, 0, "built without NCCL: HOROVOD_GPU_OPERATIONS=NCCL"),
        ("gloo", False, 0, "built without Gloo"),
        ("gloo", None, None, None),
    ],
)
def test_horovod_says_with_what_it_was_built(
    tmp_path: Path, backend: str, gloo: bool | None, nccl: int | None, refusal: str | None
) -> None:
    package, root = tmp_path / "packages" / "horovod", tmp_path / "root"
    for each in (package, root):
        each.mkdir(parents=True)
    (package / "__init__.py").touch()
    if gloo is not None:
        (package / "torch.py").write_text("raise ImportError('not built')\n")
        (package / "tensorflow.py").write_text(f"gloo_built, nccl_built = lambda: {gloo}, lambda: {nccl}\n")
    files = {"dttui_config.json": f'{{"backend": "{backend}"}}'}
    env = {"PYTHONPATH": str(package.parent)}
    said = judge(ValidationRequest(sys.executable, ["horovod"], env=env, files=files, seconds=60), root)
    verdict = said.verdicts["horovod"]
    assert (verdict.unseen is not None) is (gloo is None)
    assert (refusal in (verdict.refusal or "")) if refusal else (verdict.refusal is None)


@pytest.mark.parametrize(
    ("body", "unseen"),
    [
        ("exit 3", "exits with 3"),
        ("echo broken >&2; exit 3", "exits with 3: broken"),
        ("exec tail -f /dev/null", "gave no answer within 1 s"),
        ("exec yes", "does not answer as Python does: it prints without end"),
        ("echo 'dtagent-verdict ['", "exits with 0"),
    ],
)
def test_an_interpreter_that_does_not_answer_is_no_refusal(tmp_path: Path, body: str, unseen: str) -> None:
    python = fake(tmp_path / "python", body)
    assert judge(ValidationRequest(python, ["torchrun"], seconds=0.1), tmp_path) == ValidationReply(
        {}, f"{python} {unseen}"
    )


def test_an_interpreter_behind_a_prefix_is_asked_behind_it(tmp_path: Path) -> None:
    request = ValidationRequest("/inside/python", ["nobodys"], seconds=60)
    assert judge(request, tmp_path).unseen == "/inside/python is not there"
    runner = fake(tmp_path / "runner", f'[ "$1" = /inside/python ] && shift; exec {sys.executable} "$@"')
    said = judge(ValidationRequest("/inside/python", ["nobodys"], seconds=60, prefix=[runner]), tmp_path)
    assert said.verdicts["nobodys"].unseen == "this agent knows no check nobodys"


def test_an_interpreter_that_is_not_there_and_a_file_outside_are_named(tmp_path: Path) -> None:
    reply = judge(ValidationRequest("/no/python", ["torchrun"]), tmp_path)
    assert reply.unseen == "/no/python is not there"
    with pytest.raises(RpcError, match=r"not the name of a file: '\.\./x'"):
        judge(ValidationRequest(sys.executable, ["torchrun"], files={"../x": ""}), tmp_path)


def test_what_a_daemon_left_that_was_killed_meanwhile_goes_with_the_next_and_ends_by_itself(tmp_path: Path) -> None:
    left, other = tmp_path / "verdict-abc", tmp_path / "jobs"
    for directory in (left, other):
        directory.mkdir()
    (tmp_path / "endless.py").write_text("import signal\ndef check(request):\n    signal.pause()\n")
    (left / "request.json").write_text('{"checks": ["endless:check"], "argv": [], "world_size": 1, "limit_s": 0.2}')
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    argv = [sys.executable, payload.__file__, "mark ", "request.json"]
    assert subprocess.run(argv, cwd=left, env=env, timeout=120, check=False).returncode == -signal.SIGALRM
    Checks(tmp_path)
    assert not left.exists()
    assert other.exists()
