"""`schema`, `fmt`, and how the mistakes of a job file are printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dttui.cli import main
from dttui.spec.json_schema import job_schema

pytestmark = pytest.mark.usefixtures("english")

WRONG = "distributed_training:\n  name: a\n  name: b\n  run:\n    args: [训练, ~]\n    scrpt: x\n"
UNORDERED = "distributed_training:\n  framework: command # f\n  name: a\n"
ORDERED = "distributed_training:\n  name: a\n  framework: command # f\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("job.yaml")


@pytest.mark.parametrize("output", ["human", "json", "jsonl"])
def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str], output: str) -> None:
    assert main(["schema", "--output", output]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == job_schema()
    assert printed.isascii()
    assert (len(printed.splitlines()) == 1) == (output == "jsonl")


def test_files_are_formatted_or_only_checked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(UNORDERED)
    assert main(["fmt", "--check", "job.yaml"]) == 2
    assert capsys.readouterr().out == "job.yaml: would be changed\n"
    assert file.read_text() == UNORDERED
    assert main(["fmt", "job.yaml"]) == 0
    assert capsys.readouterr().out == "job.yaml: changed\n"
    assert file.read_text() == ORDERED.replace("command # f", "command  # f")
    assert main(["fmt", "job.yaml", "--check", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"file": "job.yaml", "changed": False}]


def test_files_with_mistakes_stay_and_all_are_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(UNORDERED)
    Path("wrong.yaml").write_text("distributed_training: {nme: a}\n")
    assert main(["fmt", "wrong.yaml", "none.yaml", "job.yaml"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "job.yaml: changed\n"
    assert "wrong.yaml:1:24" in printed.err
    assert "none.yaml: no such file" in printed.err
    assert main(["fmt", "wrong.yaml", "job.yaml", "--output", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


@pytest.mark.parametrize("command", [["validate"], ["plan", "--demo"], ["apply", "--demo"]])
def test_mistakes_are_printed_as_compilers_do(
    file: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    file.write_text(WRONG)
    assert main([*command, "job.yaml"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "job.yaml:3:3: distributed_training.name: this key is here twice; the first is in line 2",
        "      name: b",
        "      ^",
        "job.yaml:5:16: distributed_training.run.args[1]: expected text, found nothing",
        "        args: [训练, ~]",
        "                     ^",
        'job.yaml:6:5: distributed_training.run.scrpt: unknown key; did you mean "script"?',
        "        scrpt: x",
        "        ^",
    ]


def test_mistakes_are_data_and_chinese_where_that_is_asked_for(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("distributed_training:\n  name: a\n  framework: pytorch_ddp\n  resources: {gpu: {count: x}}\n")
    assert main(["validate", "job.yaml", "--output", "json", "--lang", "zh"]) == 2
    printed = capsys.readouterr()
    first, second = json.loads(printed.out)["problems"]
    assert (first["file"], first["line"], first["column"]) == ("job.yaml", 3, 14)
    assert first["path"] == "distributed_training.framework"
    assert first["source_line"] == "  framework: pytorch_ddp"
    assert first["hint"] == "是不是想写“pytorch-ddp”？"
    assert second["message"] == '应为整数，实为 "x"'
    assert "job.yaml:4:28: distributed_training.resources.gpu.count: 应为整数" in printed.err


def test_a_valid_job_that_no_plan_can_be_made_of_yet_says_what_is_open(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("distributed_training:\n  name: a\n  framework: tensorflow\n  run: {script: a.py}\n")
    assert main(["validate", "job.yaml", "--output", "json"]) == 0
    codes = [finding["code"] for finding in json.loads(capsys.readouterr().out)["needed"]]
    assert codes == ["dataset-missing", "no-nodes", "script-missing"]
    assert main(["validate", "job.yaml"]) == 0
    assert "`dttui plan` will ask for more:\n· dataset-missing" in capsys.readouterr().out
    file.with_name("a.py").touch()
    file.write_text(
        "distributed_training:\n  name: a\n  framework: pytorch-ddp\n  dataset: none\n  run: {script: a.py}\n"
        "  cluster: {nodes: [{id: a}]}\n"
    )
    assert main(["validate", "job.yaml"]) == 0
    assert "will ask" not in capsys.readouterr().out


def test_a_wrong_option_of_the_framework_is_a_mistake_with_its_place(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        "distributed_training:\n  name: a\n  framework: pytorch-fsdp\n  framework_options:\n    wraps: size\n"
    )
    assert main(["validate", "job.yaml"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("job.yaml:5:12: distributed_training.framework_options.wraps: PyTorch FSDP has no")
    assert 'did you mean "wrap"?' in printed.err


def test_a_misspelt_verb_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["valdate", "job.yaml"])
    assert 'there is no "valdate"; did you mean "validate"?' in capsys.readouterr().err
