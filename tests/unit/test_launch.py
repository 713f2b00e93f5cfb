"""What is checked on the login node before a launch, and what is written there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dttui.errors import UsageError
from dttui.files import write_atomic
from dttui.inventory.models import Environment, Inventory
from dttui.planning.models import Finding, Plan, Severity
from dttui.services.jobs import JobDirectory
from dttui.services.launch import submit as launch
from dttui.services.launch.submit import Submission, make_local_plan, submit
from dttui.spec import parse_job

INVENTORY = Inventory(environments=(Environment(name="gpu1", host="gpu1"),))
JOB = """\
distributed_training:
  name: test
  dataset: none
  framework: pytorch-ddp
  cluster: {{nodes: [{{id: gpu1, role: master, resources: {{gpu: {{count: 1}}}}}}]}}
  run: {run}
"""


def planned(base: Path, run: str = "{script: train.py}") -> Plan:
    return make_local_plan(submission(base, run))


def submission(base: Path, run: str = "{script: train.py}") -> Submission:
    return Submission(parse_job(JOB.format(run=run), "job.yaml"), INVENTORY, base)


def finding(plan: Plan, code: str) -> Finding:
    (found,) = [item for item in plan.findings if item.code == code]
    return found


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("")
    return tmp_path


def test_what_is_not_sent_is_named_up_to_five_and_counted(base: Path) -> None:
    assert not [item for item in planned(base).findings if item.code == "not-sent"]
    for number in range(7):
        (base / f"{number}.env").write_text("")
    found = finding(planned(base), "not-sent")
    assert found.severity is Severity.INFO
    assert found.message == "not sent to the hosts: 0.env, 1.env, 2.env, 3.env, 4.env and 2 more"


def test_a_name_that_is_not_utf8_is_an_error_that_names_it(base: Path) -> None:
    (base / os.fsdecode(b"caf\xe9")).write_text("")
    found = finding(planned(base), "file-name")
    assert found.severity is Severity.ERROR
    assert "caf\N{REPLACEMENT CHARACTER}" in found.message
    found.model_dump_json()


@pytest.mark.parametrize("inside", ["", "me", "me/deeper"])
def test_a_home_directory_is_never_sent(inside: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(base / inside))
    assert finding(planned(base), "workdir-home").severity is Severity.ERROR


def test_the_root_is_never_sent() -> None:
    assert finding(planned(Path("/")), "workdir-home").severity is Severity.ERROR


def test_a_directory_within_the_home_is_sent(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(base.parent))
    assert planned(base).errors == ()


def test_a_script_that_would_not_be_sent_is_an_error(base: Path) -> None:
    (base / ".hidden").mkdir()
    (base / ".hidden/train.py").write_text("")
    assert finding(planned(base, "{script: .hidden/train.py}"), "script-not-sent").severity is Severity.ERROR


@pytest.mark.parametrize("name", ["DTTUI_JOB_ID", "DTTUI_LOGS", "RANK", "MASTER_PORT", "TORCHELASTIC_RUN_ID"])
def test_the_variables_that_ranks_find_each_other_by_may_not_be_set(name: str, base: Path) -> None:
    found = finding(planned(base, f"{{script: train.py, env: {{{name}: '1'}}}}"), "reserved-variable")
    assert (found.severity, found.subject) == (Severity.ERROR, f"run.env.{name}")
    assert name in found.message
    assert found.hint
    found = finding(planned(base, f"{{script: train.py, secrets: [{name}]}}"), "reserved-variable")
    assert (found.severity, found.subject) == (Severity.ERROR, "run.secrets")


def test_other_variables_may_be_set(base: Path) -> None:
    env = "{DTTUI_BACKEND: gloo, DTTUI_CHECKPOINT_DIR: /c, OMP_NUM_THREADS: '4', RANKING: x}"
    assert planned(base, f"{{script: train.py, env: {env}}}").errors == ()


def test_what_is_submitted_is_for_its_user_alone(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[JobDirectory] = []
    monkeypatch.setattr(launch, "start_controller", lambda directory, *_lock, **_options: started.append(directory))
    directory = submit(submission(base), planned(base), expects_client=False)
    assert started == [directory]
    for path in (directory.document, directory.plan, directory.launch):
        assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in directory.path.iterdir() if path.is_file()) == [
        "controller.lock",
        "job.yaml",
        "launch.json",
        "plan.json",
    ]


def test_a_full_disk_is_told_and_no_controller_starts(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(UsageError, match="No space left"):
        submit(submission(base), planned(base), expects_client=False)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a/b/file"
    write_atomic(path, "old")
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\udce9")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_nodes_of_long_names_have_files_of_short_names_of_their_own(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    one, other = ("名" * 79 + last for last in "一二")
    assert directory.samples(one) != directory.samples(other)
    assert len(directory.logs(0, one).name.encode()) <= 120
    assert directory.samples("gpu1").name == "gpu1.jsonl"
