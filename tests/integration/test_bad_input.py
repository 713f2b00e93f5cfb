"""What a person gets for a mistake: a message with the place and the remedy, exit code 2, and never a stack trace."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.integration.headless import dttui, dttui_here, shell_job

ONE = "pytorch-dev-env"
Run = Callable[..., subprocess.CompletedProcess[str]]


def refused(*arguments: str | Path, code: int = 2, run: Run = dttui_here) -> str:
    """Run dttui, which must refuse; return what it says."""
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: [\n", ":2:1", "YAML"),
        ("", "", "empty"),
        ("- a\n", ":1:1", "distributed_training"),
        ("distributed_training:\n  name: x\n  clutser: {}\n", ":3:3", 'did you mean "cluster"'),
        ("distributed_training:\n  cluster: {nodes: [{id: a}]}\n", ":1:1", "name"),
        ("distributed_training:\n  name: x\n  name: y\n", ":3:3", "name"),
        ("distributed_training:\n  name: x\n  strategy: {type: data_paralel}\n", ":3:", "data_parallel"),
    ],
)
def test_a_job_file_that_cannot_be_used_is_refused_with_its_place(
    tmp_path: Path, text: str, place: str, words: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    said = refused("--demo", "--apply", path)
    assert f"job.yaml{place}" in said
    assert words in said


def test_a_job_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "nowhere.yaml" in refused("--demo", "--apply", tmp_path / "nowhere.yaml", run=dttui)


def test_an_environment_that_is_not_in_the_inventory_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    said = refused("--demo", "--apply", shell_job(tmp_path, {"pytorch-dev-envv": 1}, "true"))
    assert "job.yaml:6:11: distributed_training.cluster.nodes[0].id: " in said
    assert said.count("pytorch-dev-envv") == 2, "in the message, once, and in the line of the file"
    assert 'did you mean "pytorch-dev-env"' in said


def test_a_job_without_nodes_is_refused(tmp_path: Path) -> None:
    said = refused("--demo", "--apply", shell_job(tmp_path, {}, "true"))
    assert "job.yaml:5:12: distributed_training.cluster.nodes: no environment is chosen" in said


def test_more_gpus_than_there_are_is_refused_with_both_numbers(tmp_path: Path) -> None:
    said = refused("--demo", "--apply", shell_job(tmp_path, {ONE: 5}, "true"))
    assert "5 GPUs are asked of pytorch-dev-env, which has 2" in said
    assert "job.yaml:10:18: distributed_training.cluster.nodes[0].resources.gpu.count" in said


def test_a_script_that_is_not_there_is_refused_before_anything_is_reached(tmp_path: Path) -> None:
    job = {
        "name": "x",
        "framework": "pytorch-ddp",
        "dataset": "none",
        "run": {"script": "trian.py"},
        "cluster": {"nodes": [{"id": ONE}]},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"distributed_training": job}))
    said = refused("--demo", "--apply", path)
    assert f"there is no script trian.py in {tmp_path}. Write the path relative to workdir." in said
    assert "job.yaml:9:13: distributed_training.run.script" in said


def test_two_nodes_with_one_address_are_refused(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    environments = [{"name": name, "host": "10.9.9.9", "resources": {"gpu": {"count": 1}}} for name in ("a", "b")]
    inventory.write_text(yaml.safe_dump({"environments": environments}))
    said = refused("--inventory", inventory, "--apply", shell_job(tmp_path, {"a": 1, "b": 1}, "true"))
    assert "10.9.9.9" in said
    assert "distributed_training.cluster.nodes[1].id" in said


def test_without_an_inventory_the_remedy_is_told(tmp_path: Path) -> None:
    said = refused("--apply", shell_job(tmp_path, {ONE: 1}, "true"))
    assert "--demo" in said
    assert "inventory.yaml" in said


def test_the_screen_without_a_terminal_is_refused_with_a_hint() -> None:
    assert "--apply" in refused("--demo", run=dttui)


def test_a_job_that_does_not_exist_is_exit_code_102() -> None:
    assert "no-such-job" in refused("status", "no-such-job", code=102)
    assert "there is no job on this login node" in refused("logs", code=102)


def test_problems_come_as_data_with_output_json(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("distributed_training:\n  name: x\n  clutser: {}\n")
    done = dttui_here("validate", path, "--output", "json")
    problem = yaml.safe_load(done.stdout)["problems"][0]
    assert done.returncode == 2
    assert (problem["line"], problem["column"]) == (3, 3)


def test_errors_of_a_plan_come_as_data_with_their_places(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 5}, "true")
    key = "distributed_training.cluster.nodes[0].resources.gpu.count"
    applied = dttui_here("--demo", "--apply", job, "--output", "json")
    assert applied.returncode == 2
    (problem,) = yaml.safe_load(applied.stdout)["problems"]
    planned = dttui_here("--demo", "plan", job, "--output", "json")
    assert planned.returncode == 2
    place = yaml.safe_load(planned.stdout)["findings"][0]["place"]
    for told in (problem, place):
        assert (told["file"], told["line"], told["column"], told["path"]) == (str(job), 10, 18, key)
    assert f"{job}:10:18: {key}: " in dttui_here("--demo", "plan", job).stdout


def test_an_environment_may_follow_envs_at_once_and_what_is_none_is_told_with_the_remedy(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("environments:\n  - {name: gpu1, host: 127.0.0.1, port: 1}\n")
    done = dttui_here("--inventory", inventory, "envs", "gpu1", "--output", "json")
    assert [row["name"] for row in yaml.safe_load(done.stdout)] == ["gpu1"]
    for words, remedy in (
        (["gpu2"], '"gpu1"'),
        (["lst"], '"list"'),
        (["trsut", "gpu1"], '"trust"'),
        (["x"], "has: gpu1"),
    ):
        said = refused("--inventory", inventory, "envs", *words)
        assert f"there is no environment {words[0]}" in said
        assert remedy in said


def test_an_inventory_without_hosts_is_told_with_the_remedy(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("environments: []\n")
    done = dttui_here("--inventory", inventory, "envs")
    assert (done.returncode, done.stdout) == (0, "")
    assert "dttui envs import" in done.stderr


def test_hosts_are_imported_into_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    ssh = Path.home() / ".ssh"
    ssh.mkdir()
    (ssh / "config").write_text("Host gpu1\nHost gpu2\n")
    inventory = tmp_path / "new" / "inventory.yaml"
    done = dttui_here("envs", "import", "gpu1", "--inventory", inventory)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"1 host added to {inventory}: gpu1\n"
    assert yaml.safe_load(inventory.read_text()) == {"environments": [{"name": "gpu1", "host": "gpu1"}]}


def test_messages_come_in_chinese_when_asked_for(tmp_path: Path) -> None:
    said = refused("--lang", "zh", "--demo", "--apply", tmp_path / "nowhere.yaml", run=dttui)
    assert any("\u4e00" <= letter <= "\u9fff" for letter in said)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--apply", "x.yaml", "ps"], "--apply and ps exclude each other"),
        (["--apply", "x.yaml", "apply", "y.yaml"], "exclude each other"),
        (["--detach", "ps"], "--detach"),
        (["--dry-run", "ps"], "--dry-run"),
        (["agents", "status", "--dry-run"], "--dry-run"),
        (["envs", "--dry-run"], "--dry-run"),
        (["--timeout", "3s", "ps"], "--timeout"),
        (["--timeout", "3s"], "--timeout"),
        (["--dry-run"], "--dry-run"),
        (["logs", "-n", "0"], "at least 1"),
        (["logs", "-n", "many"], "at least 1"),
    ],
)
def test_options_that_would_do_nothing_are_refused(arguments: list[str], words: str) -> None:
    assert words in refused(*arguments)


def test_a_log_that_goes_on_makes_no_json_document() -> None:
    done = dttui_here("logs", "-f", "--output", "json")
    assert done.returncode == 2
    assert "jsonl" in yaml.safe_load(done.stdout)["hint"]


def test_a_dry_run_may_be_said_before_the_verb(tmp_path: Path) -> None:
    done = dttui_here("--demo", "--dry-run", "apply", shell_job(tmp_path, {ONE: 1}, "true"))
    assert done.returncode == 0, done.stderr
    assert ONE in done.stdout
    assert dttui_here("ps", "--all", "--output", "json").stdout.strip() == "[]"


def test_hosts_are_imported_and_mistrusted_as_data() -> None:
    ssh = Path.home() / ".ssh"
    ssh.mkdir()
    (ssh / "config").write_text("Host github.com\n  User git\nHost gpu1\n  HostName 127.0.0.1\n  Port 1\n")
    imported = yaml.safe_load(dttui_here("envs", "import", "--output", "json").stdout)
    assert imported["added"] == ["gpu1"]
    assert Path(imported["inventory"]).exists()
    for command in (("envs", "trust"), ("agents", "deploy")):
        done = dttui_here(*command, "gpu1", "--output", "json")
        assert done.returncode == 4
        assert [row["host"] for row in yaml.safe_load(done.stdout)] == ["gpu1"]
