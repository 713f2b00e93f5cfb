"""Templates: each plans and compiles, `init` writes it for other environments, and what it refuses."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

from dttui import locations
from dttui.compose.templates import Template, choose_template, job_text, made_for, read_templates
from dttui.errors import UsageError
from dttui.frameworks import Unavailable, frameworks, get_framework
from dttui.i18n import set_language
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Environment, Inventory
from dttui.planning.planner import plan
from dttui.spec import parse_job
from tests.integration.headless import dttui_here

EXAMPLES = locations.shipped("examples")
TEMPLATES = read_templates(EXAMPLES)
NAMES = [template.name for template in TEMPLATES]
CASES = {"resnet", "gpt3", "bert", "llm", "vision", "fault-tolerant"}
DEMO = demo_inventory(Path("/var/tmp/x"), EXAMPLES, "python3")


def template(name: str) -> Template:
    return choose_template(TEMPLATES, None, name)


def hosts(*gpus: int | None) -> Inventory:
    """Return an inventory of hosts by how many GPUs they are declared with."""
    listed = [
        {"name": f"gpu{index}", "host": f"gpu{index}", "address": f"10.0.0.{index + 1}"}
        | ({} if count is None else {"resources": {"gpu": {"count": count, "type": "A100", "memory": "80GB"}}})
        for index, count in enumerate(gpus)
    ]
    return Inventory(environments=tuple(Environment.model_validate(item) for item in listed))


def test_every_framework_has_one_and_the_cases_of_the_seeds_are_there() -> None:
    own = [item.framework for item in TEMPLATES if item.is_of_framework]
    assert own == [framework.name for framework in frameworks() if framework.name in own]
    assert set(own) >= {"pytorch-ddp", "pytorch-fsdp", "deepspeed", "horovod", "megatron-lm", "tensorflow", "command"}
    assert set(NAMES) >= CASES


@pytest.mark.parametrize("name", [framework.name for framework in frameworks()])
def test_without_an_example_of_a_framework_there_is_a_job_of_all_gpus_for_a_script_of_ones_own(name: str) -> None:
    bare = choose_template([], name, None)
    inventory = hosts(4, 4, 4)
    job = made_for(bare, inventory.environments[:2], inventory, "mine")
    text = job_text(bare, job)
    assert parse_job(text, "job.yaml") == job
    assert text.startswith(f"# {get_framework(name).label}: ")
    assert [item.path for item in bare.files_for(job)] == ["job.yaml"]
    made = plan(job, inventory)
    assert [node.slots for node in made.nodes] == [4, 4]
    assert [finding.code for finding in made.errors] == ["run-mismatch"] * (name == "command")


def test_a_framework_that_cannot_be_loaded_is_no_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Unavailable("mine", "Mine", "mine cannot be loaded: no torch", "Mend it.")
    monkeypatch.setattr("dttui.compose.templates.get_framework", lambda _name: broken)
    with pytest.raises(UsageError, match="mine cannot be loaded") as raised:
        choose_template(TEMPLATES, "mine", None)
    assert raised.value.hint == "Mend it."


@pytest.mark.parametrize("name", NAMES)
def test_each_is_told_in_both_languages_and_its_scripts_compile(name: str) -> None:
    chosen = template(name)
    told = {}
    try:
        for language in ("en", "zh"):
            set_language(language)
            told[language] = chosen.title
    finally:
        set_language("en")
    assert len(told["en"]) <= 110
    assert told["en"].isascii()
    assert not told["zh"].isascii()
    files = {file.path: file.source for file in chosen.files()}
    assert "train.py" in files
    assert "job.yaml" not in files
    for path, source in files.items():
        if source is not None and path.endswith(".py"):
            compile(source.read_text(encoding="utf-8"), path, "exec")


@pytest.mark.parametrize("name", NAMES)
def test_each_is_planned_without_errors_on_the_embedded_cluster(name: str) -> None:
    made = plan(template(name).job, DEMO)
    assert made.errors == ()
    assert all(node.processes for node in made.nodes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gpus", [(8,), (1, 1), (8, 8), (2, 4, 8), (1, 4, 4, 4, 2)])
def test_each_is_planned_without_errors_on_other_hosts(name: str, gpus: tuple[int, ...]) -> None:
    chosen, inventory = template(name), hosts(*gpus)
    job = made_for(chosen, inventory.environments, inventory, "mine")
    assert plan(job, inventory).errors == ()
    assert parse_job(job_text(chosen, job), "job.yaml") == job


def test_their_job_files_are_in_the_one_form() -> None:
    assert dttui_here("fmt", "--check", *sorted(EXAMPLES.glob("*/job.yaml"))).returncode == 0


def test_the_samples_of_a_rank_stay_and_degrees_fit_the_ranks() -> None:
    inventory = hosts(8, 8, 8, 8)
    gpt = made_for(template("gpt"), inventory.environments, inventory, "mine")
    assert gpt.strategy.data_parallel is not None
    assert gpt.strategy.data_parallel.batch_size == 4 * (1 + 1 + 2 + 2)
    pipeline = made_for(template("megatron-lm"), inventory.environments[:2], inventory, "mine")
    assert (pipeline.strategy.tensor_parallel_size, pipeline.strategy.pipeline_parallel_size) == (2, 2)
    assert pipeline.model is not None
    assert pipeline.model.layers == 2


def test_where_nobody_says_how_many_gpus_there_are_the_job_takes_all() -> None:
    inventory = hosts(None, 4)
    job = made_for(template("gpt"), inventory.environments, inventory, "mine")
    assert [node.resources is None for node in job.cluster.nodes] == [True, False]


def test_a_dataset_that_the_inventory_lacks_is_left_out() -> None:
    inventory = hosts(2)
    assert made_for(template("deepspeed"), inventory.environments, inventory, "mine").dataset == "none"
    assert made_for(template("deepspeed"), DEMO.environments, DEMO, "mine").dataset != "none"


def test_what_was_written_keeps_the_comments_that_are_about_the_job() -> None:
    chosen = template("llm")
    inventory = hosts(2, 2)
    text = job_text(chosen, made_for(chosen, inventory.environments, inventory, "mine"))
    assert text.startswith(f"# {chosen.title}\n#\n# The interpreter needs torch")
    assert "examples/" not in text
    assert "$schema" not in text
    assert "workdir: .\n" in text
    assert "# one layer is gathered at a time" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_job_file_for_a_reader_of_chinese_has_chinese_comments_and_is_the_same_job(name: str) -> None:
    chosen, inventory = template(name), hosts(2, 2, 2)
    job = made_for(chosen, inventory.environments, inventory, "mine")
    english = job_text(chosen, job)
    try:
        set_language("zh")
        chinese = job_text(chosen, job)
    finally:
        set_language("en")
    assert parse_job(chinese, "job.yaml") == parse_job(english, "job.yaml") == job
    told = [line.rpartition("# ")[2] for line in chinese.splitlines() if "# " in line]
    # What stays as it is are keys that a person may put in.
    assert [text for text in told if text.isascii() and not re.fullmatch(r"(or )?\w+(: \S.*)?", text)] == []
    assert len(told) > 5


def test_a_job_that_is_called_as_a_comment_keeps_its_name(tmp_path: Path) -> None:
    name = "a # relative to workdir"
    assert dttui_here("--demo", "--lang", "zh", "init", "--template", "resnet", tmp_path / name).returncode == 0
    text = (tmp_path / name / "job.yaml").read_text(encoding="utf-8")
    assert parse_job(text, "job.yaml").name == name
    assert "# 相对于 workdir\n" in text


def test_init_writes_a_job_that_plans_and_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = dttui_here("--demo", "init", "--framework", "pytorch-fsdp", "--nodes", "nlp-research-lab,pytorch-dev-env")
    assert done.returncode == 0, done.stderr
    assert "dttui plan --demo pytorch-fsdp/job.yaml" in done.stdout
    assert "dttui --demo --apply pytorch-fsdp/job.yaml" in done.stdout
    job = yaml.safe_load(Path("pytorch-fsdp/job.yaml").read_text(encoding="utf-8"))["distributed_training"]
    assert job["name"] == "pytorch-fsdp"
    assert [(node["id"], node["role"]) for node in job["cluster"]["nodes"]] == [
        ("nlp-research-lab", "master"),
        ("pytorch-dev-env", "worker"),
    ]
    assert Path("pytorch-fsdp/train.py").read_text() == (EXAMPLES / "pytorch-fsdp" / "train.py").read_text()
    assert dttui_here("--demo", "plan", "pytorch-fsdp/job.yaml").returncode == 0


@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ("horovod", ["horovod", "torch"]),
        ("command", ["torch"]),
        ("megatron-lm", ["torch", "megatron-core"]),
        ("gpt", ["torch"]),
        ("tensorflow", ["tensorflow"]),
    ],
)
def test_the_packages_are_those_of_the_framework_and_of_the_script(name: str, packages: list[str]) -> None:
    assert next(item for item in TEMPLATES if item.name == name).packages() == packages


def test_a_case_brings_the_files_of_the_example_it_varies(tmp_path: Path) -> None:
    done = dttui_here("--demo", "init", "--template", "fault-tolerant", tmp_path / "mine", "--output", "json")
    written = json.loads(done.stdout)
    assert {path.name for path in (tmp_path / "mine").iterdir()} == set(written["files"])
    assert {"checkpoint.py", "corpus.txt", "job.yaml"} <= set(written["files"])
    assert written["framework"] == "pytorch-ddp"
    assert "workdir: .\n" in (tmp_path / "mine" / "job.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("directory", "name"), [("it's: #x", "it's: #x"), ("a\tb", "a b"), (" ", "job"), ("训练", "训练")]
)
def test_the_job_is_called_as_its_directory_whatever_that_is_called(tmp_path: Path, directory: str, name: str) -> None:
    assert dttui_here("--demo", "init", "--template", "resnet", tmp_path / directory).returncode == 0
    assert parse_job((tmp_path / directory / "job.yaml").read_bytes(), "job.yaml").name == name


def test_nothing_is_replaced_without_consent(tmp_path: Path) -> None:
    mine, other = tmp_path / "train.py", tmp_path / "notes.txt"
    mine.write_text("mine")
    other.write_text("other")
    arguments = ("--demo", "init", "--framework", "command", tmp_path)
    refused = dttui_here(*arguments)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert f"{tmp_path} has {mine.name} already" in refused.stderr
    assert mine.read_text() == "mine"
    assert not (tmp_path / "job.yaml").exists()
    assert dttui_here(*arguments, "--yes").returncode == 0
    assert mine.read_text() != "mine"
    assert other.read_text() == "other"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "dttui init --list"),
        (("--framework", "deepsped"), "deepspeed"),
        (("--framework", "qqqq"), "dttui init --list"),
        (("--template", "resnt"), "resnet"),
        (("--template", "nothing-like-it"), "dttui init --list"),
        (("--template", "bert", "--framework", "deepspeed"), "the template bert is for pytorch-ddp, not for deepspeed"),
        (("--template", "bert", "--nodes", "nowhere"), "there is no environment nowhere"),
    ],
)
def test_what_init_cannot_do_it_says(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = dttui_here("--demo", "init", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_an_inventory_or_a_place_to_write_init_says_so(tmp_path: Path) -> None:
    done = dttui_here("init", "--framework", "command", tmp_path / "x")
    assert (done.returncode, "there is no inventory" in done.stderr) == (2, True)
    empty = tmp_path / "empty.yaml"
    empty.write_text("environments: []\n")
    done = dttui_here("--inventory", empty, "init", "--framework", "command", tmp_path / "x")
    assert (done.returncode, "the inventory has no environments" in done.stderr) == (2, True)
    done = dttui_here("--demo", "init", "--framework", "command", empty)
    assert (done.returncode, "cannot write" in done.stderr, "to -o" in done.stderr) == (2, True, False)


def test_the_list_shows_each_with_its_framework(tmp_path: Path) -> None:
    lines = dttui_here("init", "--list").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == NAMES
    for line, item in itertools.zip_longest(lines, TEMPLATES):
        assert line.split("\t")[1:] == [item.framework, get_framework(item.framework).label, item.title]
    rows = json.loads(dttui_here("init", "--list", "--framework", "megatron-lm", "--output", "json").stdout)
    assert [row["name"] for row in rows] == ["megatron-lm", "gpt3"]
