"""How a problem reads, and how near a word must be to be meant."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from dttui.errors import ExitCode, UsageError
from dttui.spec.problems import DocumentError, Problem, format_path, nearest, printable, shown


def test_a_problem_is_followed_by_its_line_and_a_caret_under_the_place() -> None:
    path = ("distributed_training", "run", "scrpt")
    problem = Problem("job.yaml", "unknown key", 'did you mean "script"?', path, 12, 5, "    scrpt: train.py")
    assert problem.render() == (
        'job.yaml:12:5: distributed_training.run.scrpt: unknown key; did you mean "script"?\n'
        "        scrpt: train.py\n"
        "        ^"
    )


def test_the_caret_counts_wide_characters_as_two_columns() -> None:
    rendered = Problem("j", "x", line=1, column=5, source_line="名字: 训练").render().splitlines()
    assert rendered[-1] == "    " + " " * 6 + "^"


@pytest.mark.parametrize("before", ["\t\ta:\t", "a\u0301e\u20dd: ", "名\t字😀"])
def test_the_caret_stands_under_its_place_whatever_comes_before(before: str) -> None:
    rendered = Problem("j", "x", line=1, column=len(before) + 1, source_line=f"{before}!").render().splitlines()
    assert cell_len(rendered[1][: rendered[1].index("!")]) == rendered[2].index("^")


def test_a_long_line_is_cut_around_the_place() -> None:
    line = "a" * 5000 + "!" + "b" * 5000
    rendered = Problem("j", "x", line=1, column=5001, source_line=line).render().splitlines()
    assert len(rendered[1]) <= 104
    assert rendered[1][rendered[2].index("^")] == "!"


def test_nothing_in_a_problem_drives_the_terminal() -> None:
    problem = Problem("j", "x", path=("\x1b[2J",), line=1, column=1, source_line="a: \x1b]52;c;aGk=\x07\u202e")
    assert "\x1b" not in problem.render()
    assert "\u202e" not in problem.render()


def test_a_document_error_is_a_usage_error_with_all_its_problems() -> None:
    error = DocumentError([Problem("j", "one"), Problem("j", "two")])
    assert isinstance(error, UsageError)
    assert error.exit_code is ExitCode.USAGE
    assert [problem.message for problem in error.problems] == ["one", "two"]
    assert str(error) == "j: one\nj: two"


def test_paths_read_as_people_write_them() -> None:
    assert format_path(("cluster", "nodes", 1, "id")) == "cluster.nodes[1].id"
    assert format_path(()) == ""


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("scrpt", ["script", "module", "command"], "script"),
        ("PyTorch_DDP", ["pytorch-ddp", "pytorch-fsdp"], "pytorch-ddp"),
        ("ddp", ["pytorch-ddp", "pytorch-fsdp"], "pytorch-ddp"),
        ("nccl", ["NCCL", "MPI"], "NCCL"),
        ("megatron", ["deepspeed", "megatron-lm"], "megatron-lm"),
        ("banana", ["script", "module"], None),
        ("x", [], None),
    ],
)
def test_the_nearest_word_is_found_or_none(word: str, known: list[str], expected: str | None) -> None:
    assert nearest(word, known) == expected


def test_values_are_shown_short_and_on_one_line() -> None:
    assert shown("a\nb") == '"a�b"'
    assert len(shown("x" * 1000)) < 70
    values: list[object] = [None, True, (), {}, 3]
    assert [shown(value) for value in values] == ["nothing", "true", "a list", "a mapping", "3"]


def test_printable_leaves_text_of_all_languages_alone() -> None:
    assert printable("训练 é 😀") == "训练 é 😀"
