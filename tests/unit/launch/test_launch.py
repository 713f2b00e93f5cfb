"""What is checked on the login node before a launch, and what is written there."""

from __future__ import annotations

import json
import os
import subprocess
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.cli.sources import read_submission
from dttui.errors import UsageError
from dttui.files import write_atomic
from dttui.frameworks.bundle import PlannedProcess
from dttui.inventory.models import Dataset, DatasetVersion, Environment, Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.launch import submit as launch
from dttui.launch.command_line import needs_on_host, script_of
from dttui.launch.local_plan import make_local_plan
from dttui.launch.same_job import find_earlier
from dttui.launch.starting import SpareController
from dttui.launch.submit import find_same, submit
from dttui.planning.models import Finding, Plan, Severity
from dttui.planning.submission import Submission
from dttui.spec import loader, parse_job, yaml_reader
from dttui.spec.yaml_composer import DOCUMENT, DocumentLimits, compose
from dttui.spec.yaml_source import YamlSource

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


def test_an_absolute_script_in_the_directory_that_is_sent_runs_from_there(base: Path) -> None:
    (base / "src").mkdir()
    (base / "src/deep.py").write_text("")
    for workdir, script in ((".", base / "train.py"), (".", base / "src/deep.py"), ("src", base / "src/deep.py")):
        plan = planned(base, f"{{script: {script}, workdir: {workdir}}}")
        assert (plan.errors, plan.nodes[0].required_paths) == ((), ())
        assert plan.nodes[0].processes[0].argv[-1] == os.path.relpath(script, base / workdir)


def test_an_absolute_script_is_known_by_either_name_of_its_directory(base: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(base)
    for directory, script in ((link, base / "train.py"), (base, link / "train.py")):
        plan = planned(directory, f"{{script: {script}, workdir: .}}")
        assert (plan.errors, plan.nodes[0].processes[0].argv[-1]) == ((), "train.py")


def test_an_absolute_script_outside_what_is_sent_must_be_on_the_hosts_and_that_is_told(base: Path) -> None:
    (base / "sent").mkdir()
    for script, severity in ((base / "train.py", Severity.WARNING), (Path("/on/hosts/train.py"), Severity.INFO)):
        plan = planned(base, f"{{script: {script}, workdir: sent}}")
        assert (plan.errors, plan.nodes[0].required_paths) == ((), (str(script),))
        told = finding(plan, "script-on-hosts")
        assert told.severity is severity
        assert "it must be at this path on every host" in told.message
        assert "set run.workdir to a directory that holds it" in told.hint


COMMAND = JOB.replace("framework: pytorch-ddp", "framework: command")


def told_of_command(base: Path, run: str) -> list[str]:
    job = parse_job(COMMAND.format(run=run), "job.yaml")
    plan = make_local_plan(Submission(job, INVENTORY, base))
    assert plan.errors == ()
    return [item.message for item in plan.findings if item.code == "command-missing"]


def test_the_files_of_a_command_are_looked_for_in_what_is_sent(base: Path) -> None:
    (base / "run.sh").write_text("")
    (base / ".hidden.py").write_text("")
    (base / "simulate").write_text("")
    for command in (
        "[python3, -u, train.py]",
        "[bash, -ex, run.sh, missing.sh]",
        "[sh, -c, ./no]",
        "[python3, -m, no]",
    ):
        assert told_of_command(base, f"{{command: {command}, workdir: .}}") == []
    assert told_of_command(base, "{command: [python3, no.py], workdir: .}") == [
        f"run.command needs no.py, which is not in {base}"
    ]
    assert told_of_command(base, "{command: [python3, .hidden.py], workdir: .}") == [
        ".hidden.py of run.command is among what is not sent"
    ]
    assert told_of_command(base, "{command: [./simulate], workdir: .}") == [
        "./simulate of run.command is not executable"
    ]
    (base / "simulate").chmod(0o755)
    assert told_of_command(base, "{command: [./simulate], workdir: .}") == []
    assert told_of_command(base, "{command: [python3, train.py]}") == [
        "run.command needs train.py, and nothing is sent without run.workdir"
    ]
    assert told_of_command(base, "{command: [python3, /opt/train.py]}") == []


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python3 train.py --x", "train.py"),
        ("/opt/conda/bin/python3.11 -uOO -X dev -Wignore -W error train.py", "train.py"),
        ("${PYTHON} -X dev train.py", "train.py"),
        ("python -uc print()", None),
        ("python -Im package train.py", None),
        ("python --check-hash-based-pycs always train.py", "train.py"),
        ("python -- train.py", "train.py"),
        ("python -", None),
        ("python", None),
        ("bash -euo pipefail run.sh", "run.sh"),
        ("bash +x --rcfile rc run.sh", "run.sh"),
        ("bash -lc ./run.sh", None),
        ("sh -s run.sh", None),
        ("perl run.pl", None),
        ("/bin/bashful x.sh", None),
    ],
)
def test_what_an_interpreter_is_told_to_run_is_known_behind_its_options(command: str, script: str | None) -> None:
    assert script_of(command.split()) == script


@pytest.mark.parametrize(
    ("argv", "cwd", "expected"),
    [
        ("python3 train.py", "${DIRECTORY}/work", (("python3",), ())),
        ("python3 train.py", "/srv", (("python3",), ("/srv/train.py",))),
        ("./run.sh", "${DIRECTORY}/work", ((), ())),
        ("bin/run", "/srv", (("/srv/bin/run",), ())),
        ("/opt/run a", "${DIRECTORY}", (("/opt/run",), ())),
        ("/bin/sh /opt/run.sh", "${DIRECTORY}/work", (("/bin/sh",), ("/opt/run.sh",))),
        ("${PYTHON} ${PAYLOAD}/torchrun.py -- train.py", "/srv", ((), ())),
        ("${PYTHON} train.py", "/srv", ((), ("/srv/train.py",))),
    ],
)
def test_what_a_process_needs_on_its_host_leaves_out_what_is_sent(
    argv: str, cwd: str, expected: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    assert needs_on_host(PlannedProcess(name="0", argv=tuple(argv.split()), env={}, cwd=cwd)) == expected


@pytest.mark.parametrize("name", ["DTTUI_JOB_ID", "DTTUI_LOGS", "RANK", "MASTER_PORT", "TORCHELASTIC_RUN_ID"])
def test_the_variables_that_ranks_find_each_other_by_may_not_be_set(name: str, base: Path) -> None:
    found = finding(planned(base, f"{{script: train.py, env: {{{name}: '1'}}}}"), "reserved-variable")
    assert (found.severity, found.subject) == (Severity.ERROR, f"run.env.{name}")
    assert name in found.message
    assert found.hint
    found = finding(planned(base, f"{{script: train.py, secrets: [{name}]}}"), "reserved-variable")
    assert (found.severity, found.subject) == (Severity.ERROR, "run.secrets")


def test_gpus_that_a_job_names_behind_the_agent_s_back_are_warned_of(base: Path) -> None:
    """They won over those that the agent had set aside, without a word; none at all is no such choice."""
    found = finding(planned(base, "{script: train.py, env: {CUDA_VISIBLE_DEVICES: '1'}}"), "gpus-by-hand")
    assert (found.severity, found.subject) == (Severity.WARNING, "run.env.CUDA_VISIBLE_DEVICES")
    assert "resources.gpu.ids" in found.hint
    for hides in ("", "-1"):
        made = planned(base, f"{{script: train.py, env: {{CUDA_VISIBLE_DEVICES: '{hides}'}}}}")
        assert "gpus-by-hand" not in {item.code for item in made.findings}


@pytest.mark.parametrize(("value", "code"), [(" x1 ", "secret-short"), ("s3same", "secret-written")])
def test_a_secret_that_cannot_stay_one_is_warned_of(
    base: Path, monkeypatch: pytest.MonkeyPatch, value: str, code: str
) -> None:
    monkeypatch.setenv("MY_TOKEN", value)
    found = finding(planned(base, "{script: train.py, args: [--key, s3same], secrets: [MY_TOKEN]}"), code)
    assert (found.severity, found.subject) == (Severity.WARNING, "run.secrets")
    assert "MY_TOKEN" in found.message
    assert value not in found.message


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


def test_a_job_that_runs_from_the_same_file_as_it_was_before_is_found_with_what_changed(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "start_controller", lambda *_arguments, **_options: None)

    def written(run: str, file: str = "job.yaml") -> Submission:
        text = JOB.format(run=run)
        return Submission(parse_job(text, file), INVENTORY, base, text, file)

    first = written("{script: train.py}")
    directory = submit(first, make_local_plan(first), expects_client=False)
    edited = written("{script: train.py, args: [--steps, 9], env: {A: b}}", "./job.yaml")
    assert find_same(first, make_local_plan(first)) == directory
    assert find_same(edited, make_local_plan(edited)) is None
    assert find_earlier(edited.job, base, "./job.yaml") == (directory, ["run.args", "run.env.A"])
    assert find_earlier(first.job, base, "job.yaml") == (directory, [])
    assert find_earlier(edited.job, base, "other.yaml") is None
    assert find_earlier(edited.job, base.parent, "job.yaml") is None
    data = {"state": "CANCELLED", "exit_code": 103}
    EventLog(directory.events).add(EventKind.OUTCOME, "", data=data)
    assert find_earlier(edited.job, base, "job.yaml") is None


def dataset(name: str, path: str) -> Dataset:
    return Dataset(id=name, versions=(DatasetVersion(id="1", path=path),))


GPU2, GPU3 = Environment(name="gpu2", host="gpu2"), Environment(name="gpu3", host="gpu3")


@pytest.mark.parametrize(
    ("candidates", "changed", "is_same"),
    [
        ("[]", {"environments": (GPU2, GPU3, *INVENTORY.environments)}, True),
        ("[]", {"datasets": (dataset("other", "/data/other"),)}, True),
        ("any", {"environments": (*INVENTORY.environments, GPU2.model_copy(update={"host": "moved"}), GPU3)}, True),
        ("[gpu2]", {"environments": (*INVENTORY.environments, GPU2, GPU3)}, True),
        ("[gpu2]", {"environments": (*INVENTORY.environments, GPU2.model_copy(update={"host": "moved"}))}, False),
        ("any", {"environments": (Environment(name="gpu1", host="moved"), GPU2)}, False),
        ("[]", {"datasets": (dataset("own", "/moved"),)}, False),
    ],
)
def test_only_what_an_inventory_says_of_a_jobs_own_environments_and_dataset_makes_another_job(
    base: Path, monkeypatch: pytest.MonkeyPatch, candidates: str, changed: dict[str, Any], is_same: bool
) -> None:
    monkeypatch.setattr(launch, "start_controller", lambda *_arguments, **_options: None)
    text = JOB.format(run="{script: train.py}").replace("nodes:", f"candidates: {candidates}, nodes:")
    text = text.replace("dataset: none", "dataset: {id: own}")
    job = parse_job(text, "job.yaml")
    known = Inventory(environments=(*INVENTORY.environments, GPU2), datasets=(dataset("own", "/data/own"),))
    first = Submission(job, known, base, text, "job.yaml", is_queued=True)
    directory = submit(first, make_local_plan(first), expects_client=False)
    if "datasets" in changed and is_same:
        changed = {"datasets": (*known.datasets, *changed["datasets"])}
    again = replace(first, inventory=known.model_copy(update=changed))
    assert find_same(again, make_local_plan(again)) == (directory if is_same else None)


def test_a_job_file_is_parsed_once_for_its_plan_its_places_and_what_runs_already(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "start_controller", lambda *_arguments, **_options: None)
    parsed: list[str] = []

    def counted(text: str, name: str, limits: DocumentLimits = DOCUMENT) -> YamlSource:
        parsed.append(name)
        return compose(text, name, limits)

    for module in (loader, yaml_reader):
        monkeypatch.setattr(module, "compose", counted)
    file = base / "job.yaml"
    file.write_text(JOB.format(run="{script: train.py, secrets: [NONE_SUCH]}"))
    wanted = replace(read_submission(Namespace(demo=True), str(file)), inventory=INVENTORY)
    (missing,) = [item for item in make_local_plan(wanted).findings if item.code == "secret-missing"]
    assert missing.place is not None
    assert parsed == [str(file)]
    file.write_text(JOB.format(run="{script: train.py}"))
    wanted = replace(read_submission(Namespace(demo=True), str(file)), inventory=INVENTORY)
    plan = make_local_plan(wanted)
    directory = submit(wanted, plan, expects_client=False)
    parsed.clear()
    assert find_same(wanted, plan) == directory
    assert find_earlier(wanted.job, base, "job.yaml") == (directory, [])
    assert parsed == [str(directory.document)]


@pytest.mark.parametrize("version", ["older", "newer"])
def test_a_job_that_another_version_has_launched_is_found(
    base: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(launch, "start_controller", lambda *_arguments, **_options: None)
    text = JOB.format(run="{script: train.py}")
    wanted, other = (Submission(parse_job(item, "job.yaml"), INVENTORY, base, item, "job.yaml") for item in (
        text, JOB.format(run="{script: train.py, args: [--steps, 9]}")))  # fmt: skip
    directory = submit(wanted, make_local_plan(wanted), expects_client=False)
    recorded = directory.read_launch().model_dump(mode="json", exclude_defaults=True)
    if version == "older":  # It knew fewer fields, and another digest came of them.
        write_atomic(directory.launch, json.dumps({**recorded, "identity": "28ed" * 16}))
        assert find_same(wanted, make_local_plan(wanted)) == directory
    else:
        write_atomic(directory.launch, json.dumps({**recorded, "version": 2, "told": "otherwise"}))
        assert find_same(wanted, make_local_plan(wanted)) is None
        assert find_earlier(wanted.job, base, "job.yaml") == (directory, [])
        assert find_earlier(other.job, base, "job.yaml") is None
        assert find_earlier(wanted.job, base.parent, "job.yaml") is None


def test_a_full_disk_is_told_and_no_controller_starts(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(UsageError, match="No space left"):
        submit(submission(base), planned(base), expects_client=False)
    assert jobs.list_jobs() == []
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_controller_that_cannot_be_started_leaves_no_job(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(UsageError, match="cannot be started: Resource temporarily unavailable"):
        submit(submission(base), planned(base), expects_client=False)
    assert jobs.list_jobs() == []
    with pytest.raises(OSError, match="temporarily"):
        SpareController()
    assert set(os.listdir("/proc/self/fd")) == before


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
