"""Options of `estimate` and `recommend` that are taken as people write them, and errors that say what would do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dttui.cli import main

SEVEN = ("--parameters", "7B", "--gpu", "H100", "--gpus", "8")


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["estimate", *arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        code: object = main(["estimate", *arguments])
    except SystemExit as end:
        code = end.code
    assert code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(("written", "tokens"), [("8192", 8192), ("128K", 131072), ("8k", 8192), ("1M", 1 << 20)])
def test_a_sequence_has_as_many_tokens_as_people_say(
    capsys: pytest.CaptureFixture[str], written: str, tokens: int
) -> None:
    found = document(capsys, *SEVEN, "--seq-length", written)
    assert found["inputs"]["model.seq_length"]["value"] == tokens


def test_known_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 60
    assert ["mixtral-8x7b", "46.7B", "12.9B", "32", "4,096", "8,192"] in [line.split() for line in lines]


def test_what_is_wrong_is_told_in_two_lines_with_where_the_options_are(capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "--seq-length", "long")
    assert told.splitlines() == [
        "dttui estimate: error: argument --seq-length: long is no whole number from 1 to 1,000,000,000",
        "  → All options: dttui estimate --help",
    ]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("rank=16,targets=bogus", "targets has to be all, attention, or of down_proj, gate_proj"),
        ("targets=all", "rank has to be a whole number from 1, as in rank=16,targets=all,bits=4"),
        ("rank=16,bit=4", 'there is no "bit"; what there is: rank, targets, bits'),
        ("rank=16,bits=5", "bits has to be 4 or 8"),
    ],
)
def test_adapters_that_are_not_understood_are_told_by_their_word(
    capsys: pytest.CaptureFixture[str], written: str, told: str
) -> None:
    assert told in refused(capsys, *SEVEN, "--lora", written)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--tp", "3"), "  → What fits here is tensor 1, 2, 4, 8.\n"),
        (("--ep", "2"), "the model has no experts to share out"),
        (("--global-batch", "9"), "  → What fits here is global batch 8, 16.\n"),
    ],
)
def test_degrees_that_do_not_fit_are_told_with_those_that_do(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], told: str
) -> None:
    assert told in refused(capsys, *SEVEN, *options)


def test_layers_that_do_not_come_out_even_are_estimated_by_the_fullest_stage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("--model", "deepseek-v3", "--gpu", "H100", "--gpus", "2048", "--ep", "64", "--zero-stage", "1")
    found = document(capsys, *options, "--pp", "16")
    (finding,) = [item for item in found["findings"] if item["code"] == "uneven-stages"]
    assert finding["message"].startswith("61 layers cannot be divided by pipeline 16 × 1 chunks: ")
    assert "no stage has more than 4 layers" in finding["message"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--schedule", "ZB-V"), "--schedule changes nothing without --pp above 1"),
        (("--sequence-parallel",), "--sequence-parallel changes nothing without --tp above 1"),
        (("--schedule", "1F1B"), None),
        (("--no-sequence-parallel",), None),
        (("--schedule", "ZB-V", "--pp", "2"), None),
    ],
)
def test_what_changes_nothing_is_told(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], told: str | None
) -> None:
    found = document(capsys, *SEVEN, "--zero-stage", "0", *options)
    idle = [item["message"] for item in found["findings"] if item["code"] == "no-effect"]
    assert idle == ([told] if told is not None else [])


def test_a_precision_that_a_gpu_lacks_is_shown_as_what_counts(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--parameters", "1B", "--gpu", "V100", "--gpus", "8", "--precision", "fp8")
    assert found["inputs"]["layout.precision"]["value"] == "fp16"
    assert [item["code"] for item in found["findings"]][:1] == ["precision"]


def test_what_was_said_of_kernels_stays_so_in_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--model", "llama-3-8b", "--gpu", "H100", "--gpus", "64", "--zero-stage", "3", "--fused")
    usual = document(capsys, *options)
    asked = document(capsys, *options, "--precision", "fp8")
    assert any(item.endswith("are as with pytorch-fsdp") for item in usual["assumes"])
    (change, *_more) = [item for item in usual["remedies"] if item["changes"] == {"precision": "fp8"}]
    assert change["memory_per_gpu_gb"] == pytest.approx(asked["memory_per_gpu_gb"]["high"])
    assert change["step_time_s"] == pytest.approx(asked["step_time_s"]["value"])
