"""`estimate` and `recommend` from the shell: of a job with its inventory, or of options alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dtagent.protocol.metric_fields import scaled

from dttui import locations
from dttui.cli import main
from dttui.frameworks import get_framework
from dttui.frameworks.parts.options import read_options
from dttui.spec import load_job

MODEL = ("--layers", "96", "--hidden-size", "12288", "--heads", "96")
JOB = """
distributed_training:
  name: large
  framework: pytorch-ddp
  dataset: none
  run: {script: /opt/train.py}
  model: {layers: 96, hidden_size: 12288, heads: 96, seq_length: 2048, vocab_size: 51200}
  strategy:
    tensor_parallel_size: 8
    pipeline_parallel_size: 8
    data_parallel: {batch_size: 64}
    recomputation: selective
    sequence_parallel: true
    pipeline_parallel: {schedule: Interleaved, virtual_stages: 3, micro_batch_size: 1}
  cluster:
    nodes: [NODES]
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The 175 B run of Korthikanti et al. on eight nodes."""
    names = [f"gpu{index}" for index in range(8)]
    inventory = "environments:\n" + "".join(
        f"  - {{name: {name}, host: {name}.example.org, resources: {{gpu: {{count: 8, type: A100, memory: 80GB}}}}}}\n"
        for name in names
    )
    locations.inventory_file().parent.mkdir(parents=True, exist_ok=True)
    locations.inventory_file().write_text(inventory)
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("NODES", ", ".join(f"{{id: {name}}}" for name in names)))
    return file


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--output", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_document_of_an_estimate_has_memory_time_rates_and_the_source_of_each_input(
    capsys: pytest.CaptureFixture[str],
) -> None:
    layout = ("--tp", "8", "--pp", "8", "--virtual-stages", "3", "--micro-batch", "1", "--global-batch", "64")
    more = ("--recompute", "selective", "--sequence-parallel", "--zero-stage", "0", "--precision", "fp16")
    hardware = ("--gpu", "A100-80GB", "--gpus", "64", "--gpus-per-node", "8")
    made = document(capsys, "estimate", *MODEL, *hardware, *layout, *more)
    assert set(made["memory_per_gpu_gb"]) == {"low", "high", "parts", "excludes"}
    assert sum(made["memory_per_gpu_gb"]["parts"].values()) == pytest.approx(made["memory_per_gpu_gb"]["low"])
    time = made["step_time_s"]
    assert set(time) == {"value", "low", "high", "parts"}
    assert {"compute", "tensor_parallel", "pipeline_bubble", "data_parallel"} <= set(time["parts"])
    assert sum(time["parts"].values()) == pytest.approx(time["value"])
    assert time["low"] < 13.75 < time["high"]  # Korthikanti et al. 2022, Table 5.
    assert made["tflops_per_gpu"] > 0
    assert 0 < made["mfu"] < 1
    assert {item["source"] for item in made["inputs"].values()} == {"declared", "default"}


def test_a_job_and_the_same_options_cost_the_same(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = job.read_text().replace("framework: pytorch-ddp", "framework: megatron-lm")
    job.write_text(text.replace("model: {", "model: {dropout: false, "))
    of_job = document(capsys, "estimate", str(job))
    layout = ("--tp", "8", "--pp", "8", "--virtual-stages", "3", "--global-batch", "64")
    more = ("--recompute", "selective", "--sequence-parallel", "--gpu", "A100-80GB", "--gpus", "64")
    of_options = document(capsys, "estimate", *MODEL, *layout, *more)
    assert of_job["step_time_s"]["value"] == pytest.approx(of_options["step_time_s"]["value"])
    assert of_job["inputs"]["layout.recompute"] == {"value": "selective", "source": "declared", "measured_at": None}


def test_options_change_a_job_for_the_estimate_alone(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "estimate", str(job), "--recompute", "full", "--no-sequence-parallel", "--tp", "4")
    assert made["inputs"]["layout.data"]["value"] == 2
    assert made["inputs"]["layout.recompute"] == {"value": "full", "source": "declared", "measured_at": None}
    assert made["inputs"]["layout.sequence_parallel"]["value"] is False
    assert made["inputs"]["layout.virtual_stages"] == {"value": 3, "source": "declared", "measured_at": None}


def test_a_recommendation_for_a_job_says_what_to_write_and_the_file_then_costs_that(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = document(capsys, "recommend", str(job))
    assert (made["gpus"], made["gpu"], made["global_batch"]) == (64, "A100-80GB", 64)
    best = made["candidates"][0]
    edit = best["edit"]
    text = job.read_text().replace("framework: pytorch-ddp", f"framework: {edit.pop('framework')}")
    start, end = text.index("  strategy:"), text.index("  cluster:")
    job.write_text(
        text[:start] + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in edit.items()) + text[end:]
    )
    assert load_job(job).strategy.tensor_parallel_size == best["tensor_parallel_size"]
    again = document(capsys, "estimate", str(job))
    assert again["step_time_s"]["value"] == pytest.approx(best["estimate"]["step_time_s"]["value"])


def test_people_are_told_the_edit_the_speed_up_and_amdahls_bound(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", str(job)]) == 0
    assert (
        "To take the first, write this under `distributed_training`:\n  framework: megatron-lm\n  strategy:"
        in capsys.readouterr().out
    )
    assert main(["estimate", "--parameters", "7e9", "--gpu", "A100", "--gpus", "64", "--global-batch", "512"]) == 0
    shown = capsys.readouterr().out
    assert "nodes  speed-up  efficiency\n    1     1.00×        100%\n" in shown
    assert "Amdahl: " in shown
    assert "all-reduce of 14 GB over 64 ranks: ring" in shown
    assert "broadcast of 14 GB" in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "which GPUs"),
        (("--gpu", "A100", "--gpus", "8"), "number of parameters"),
        (("--parameters", "7e9", "--gpu", "Voodoo", "--gpus", "8"), "Voodoo"),
        (("--parameters", "7e9", "--gpu", "A100", "--gpus", "8", "--tp", "3"), "tensor 3"),
        (("JOB", "--gpus", "8", "--heads", "4"), "--heads, --gpus"),
        (("absent.yaml",), "no such file"),
    ],
)
def test_what_cannot_be_estimated_is_refused_in_plain_words(
    job: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    given = [str(job) if argument == "JOB" else argument for argument in arguments]
    assert main(["estimate", *given]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "→" in error or "absent" in error


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "  model: {layers: 96, hidden_size: 12288, heads: 96, seq_length: 2048, vocab_size: 51200}\n",
            "",
            "its model",
        ),
        ("{id: gpu0}", "{id: gpu9}", "gpu9"),
        ("tensor_parallel_size: 8", "tensor_parallel_size: 7", "does not divide"),
    ],
)
@pytest.mark.parametrize("verb", ["estimate", "recommend"])
def test_a_job_that_has_no_estimate_says_why(
    job: Path, capsys: pytest.CaptureFixture[str], verb: str, old: str, new: str, told: str
) -> None:
    job.write_text(job.read_text().replace(old, new))
    if verb == "recommend" and "tensor" in old:
        assert main([verb, str(job)]) == 0  # It is for the search to find degrees that fit.
        return
    assert main([verb, str(job)]) == 2
    assert told in capsys.readouterr().err


def test_ones_own_types_of_gpus_count_in_every_command(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    locations.gpu_types_file().write_text(
        "gpus:\n  - {name: X9-80GB, type: X9, memory_gib: 80, bf16: 624, fp32: 39, memory_bandwidth: 4000,"
        " link: nvlink, link_bandwidth: 300, power: 400, source: mine}\n"
    )
    inventory = locations.inventory_file()
    inventory.write_text(inventory.read_text().replace("A100", "X9"))
    assert document(capsys, "estimate", str(job))["inputs"]["gpu.name"]["value"] == "X9-80GB"
    assert document(capsys, "recommend", str(job))["gpu"] == "X9-80GB"
    planned = document(capsys, "plan", str(job))
    assert planned["estimate"]["inputs"]["gpu.name"]["value"] == "X9-80GB"
    alone = document(capsys, "estimate", "--parameters", "7e9", "--gpu", "X9", "--gpus", "8")
    assert alone["inputs"]["gpu.source"]["value"] == "mine"


@pytest.mark.parametrize("verb", ["estimate", "recommend"])
@pytest.mark.parametrize(
    "more",
    [
        ("--gpus", "inf"),
        ("--gpus", "nan"),
        ("--gpus", "1e400"),
        ("--gpus", "0"),
        ("--gpus", "-4"),
        ("--gpus", "1.5"),
        ("--gpus", "8", "--global-batch", "1e15"),
        ("--gpus", "8", "--hidden-size", "1e300"),
        ("--gpus", "8", "--inter-latency", "1e999s"),
        ("--gpus", "8", "--inter-bandwidth", "1e999GB/s"),
        ("--gpus", "8", "--inter-bandwidth", "1e-300bps"),
    ],
)
def test_numbers_that_nothing_can_be_reckoned_with_are_refused_at_once(
    capsys: pytest.CaptureFixture[str], verb: str, more: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main([verb, "--parameters", "7e9", "--gpu", "A100", *more])
    assert refused.value.code == 2
    assert f"argument {more[-2]}: {more[-1]} is" in capsys.readouterr().err


def test_a_batch_that_nobody_names_follows_the_micro_batch_and_is_named_as_a_default(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(job.read_text().replace("    data_parallel: {batch_size: 64}\n", ""))
    made = document(capsys, "estimate", str(job), "--micro-batch", "2")
    assert made["inputs"]["layout.global_batch"] == {"value": 2 * 4 * 8, "source": "default", "measured_at": None}
    for command in (("recommend", str(job)), ("recommend", *MODEL, "--gpu", "A100", "--gpus", "64")):
        inputs = document(capsys, *command)["candidates"][0]["estimate"]["inputs"]
        assert inputs["layout.global_batch"]["source"] == "default"
        assert inputs["layout.precision"] == {"value": "bf16", "source": "default", "measured_at": None}


def test_a_model_that_may_fit_is_told_from_one_that_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for parameters in ("1e9", "4.1e9", "7e9"):
        assert main(["estimate", "--parameters", parameters, "--gpu", "A100-80GB", "--gpus", "1"]) == 0
        told.append(capsys.readouterr().out.splitlines()[3].rpartition("  ")[2])
    assert told == ["fits", "may not fit", "does not fit"]


def test_what_fits_with_hardly_any_memory_to_spare_is_called_tight(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--gpu", "A100-80GB", "--gpus", "1", "--recompute", "full", "--zero-stage", "0", "--parameters")
    verdicts = []
    for millions in (2500, 3800):
        made = document(capsys, "estimate", *given, f"{millions}e6")
        assert (made["memory_per_gpu_gb"]["high"] > 0.95 * made["gpu_memory_gb"]) is (millions > 2500)
        assert made["fits"]
        assert main(["estimate", *given, f"{millions}e6"]) == 0
        verdicts.append(capsys.readouterr().out.splitlines()[3].rpartition("  ")[2])
        assert main(["recommend", *given, f"{millions}e6", "--micro-batch", "1"]) == 0
        assert ("tight: less than 5.0% of the memory is spare" in capsys.readouterr().out) is (millions > 2500)
    assert verdicts == ["fits", "fits, barely"]


def test_a_row_of_a_recommendation_typed_into_estimate_needs_the_same_memory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = (*MODEL, "--gpu", "A100-80GB", "--gpus", "64")
    assert main(["recommend", *given]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("GPT-like, 174.6B: 96 layers of 12,288, 2,048 tokens a sequence, bf16")
    assert shown[1].startswith("64 × A100-80GB · global batch ")
    assert shown[1].endswith("(taken by default)")
    assert shown[2].startswith("by size alone: megatron-lm; ")
    batch = shown[1].split()[6]
    rows = [line for line in shown if re.match(r" *\d+\. ", line)]
    promised = document(capsys, "recommend", *given)["candidates"]
    assert rows
    for row, candidate in zip(rows, promised, strict=False):
        degrees = re.search(
            r"\. +(\d+) +(\d+) +(\d+) +(\d) +(\d+)  ([✓–]) +(\w+) +(?:–|1F1B|chunks ×(\d+)) .* (\S+) +\S+$", row
        )
        assert degrees is not None, row
        data, tensor, pipeline, stage, micro, sequence, again, chunks, rate = degrees.groups()
        typed = ["--dp", data, "--tp", tensor, "--pp", pipeline, "--zero-stage", stage, "--micro-batch", micro]
        typed += ["--recompute", again, "--global-batch", batch.replace(",", "")]
        typed += (["--virtual-stages", chunks] if chunks else []) + ["--sequence-parallel"] * (sequence == "✓")
        made = document(capsys, "estimate", *given, *typed)
        assert made["memory_per_gpu_gb"] == candidate["estimate"]["memory_per_gpu_gb"]
        assert scaled(made["tokens_per_s"]) == rate


def test_a_layout_that_the_jobs_framework_cannot_train_names_one_that_can(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recommend", str(job)]) == 0
    told = "pytorch-ddp does not split layers: set framework: megatron-lm"
    out = capsys.readouterr().out.rstrip()
    assert f"\n{told}\npytorch-ddp cannot hold this model here: it needs " in out
    assert "\n  framework: megatron-lm\n  strategy:\n" in out
    job.write_text(job.read_text().replace("framework: pytorch-ddp", "framework: megatron-lm"))
    assert main(["recommend", str(job)]) == 0
    assert "does not split" not in capsys.readouterr().out


def test_the_edit_keeps_what_else_the_strategy_says_and_leaves_one_pipeline_degree(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = "pipeline_parallel: {schedule: Interleaved, virtual_stages: 3, micro_batch_size: 1}"
    new = "pipeline_parallel: {pipeline_stages: 8, schedule: GPipe}\n    model_parallel: {pipeline_stages: 8}"
    text = job.read_text().replace(old, new).replace("{batch_size: 64}", "{batch_size: 64, num_workers: 4}")
    job.write_text(text)
    for candidate in document(capsys, "recommend", str(job))["candidates"]:
        strategy = candidate["edit"]["strategy"]
        assert strategy["data_parallel"] == {"batch_size": 64, "num_workers": 4}
        assert "model_parallel" not in strategy
        assert "pipeline_stages" not in strategy["pipeline_parallel"]
        assert strategy["type"] != "data_parallel" or candidate["tensor_parallel_size"] == 1


def test_findings_are_in_the_document_and_told_to_people(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [item["code"] for item in document(capsys, "estimate", str(job))["findings"]] == ["split-by-script"]
    made = document(capsys, "estimate", str(job), "--tp", "1", "--no-sequence-parallel")
    assert [item["code"] for item in made["findings"]] == ["memory"]
    given = ("--parameters", "7e9", "--layers", "96", "--hidden-size", "12288", "--gpu", "A100", "--gpus", "512")
    assert next(item["code"] for item in document(capsys, "estimate", *given)["findings"]) == "parameters-differ"
    assert main(["estimate", *given]) == 0
    assert "7B parameters are given, and 96 layers of 12288 make 175B" in capsys.readouterr().out


def test_defaults_that_decide_are_told_with_their_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--parameters", "7e9", "--gpu", "A100", "--gpus", "64"]) == 0
    usual = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("taken by default"))
    for words in ("inter-node 25 GB/s a GPU", "inside a node 300 GB/s a GPU", "64 sequences a step", "32 layers"):
        assert words in usual


def test_a_number_of_parameters_that_lacks_its_letter_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["estimate", "--parameters", "13", "--gpu", "A100", "--gpus", "8"])
    assert "did you mean 13B?" in capsys.readouterr().err


@pytest.mark.parametrize("said", ["Ascend 910B", "Ascend-910B", "昇腾 910B"])
def test_a_type_of_several_words_is_found_for_a_node_as_for_an_option(
    job: Path, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    locations.gpu_types_file().write_text(
        f"gpus:\n  - {{name: {said}, type: {said}, memory_gib: 64, bf16: 376, fp32: 94, memory_bandwidth: 1600,"
        " link: nvlink, link_bandwidth: 196, power: 400, source: mine}\n"
    )
    inventory = locations.inventory_file()
    inventory.write_text(inventory.read_text().replace("A100", said))
    assert document(capsys, "plan", str(job))["estimate"]["inputs"]["gpu.name"]["value"] == said


def test_a_card_in_a_slot_is_not_taken_for_the_module_of_that_name(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = locations.inventory_file()
    inventory.write_text(inventory.read_text().replace("A100", "H100 PCIe"))
    assert document(capsys, "estimate", str(job))["inputs"]["gpu.name"]["value"] == "H100-PCIe-80GB"


def test_the_edit_of_a_layout_that_takes_another_framework_leaves_no_option_of_the_old_one(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = "framework: pytorch-ddp\n"
    text = job.read_text()
    assert old in text
    job.write_text(text.replace(old, old + "  framework_options: {elastic: {min_nodes: 2}}\n"))
    others = [item for item in document(capsys, "recommend", str(job))["candidates"] if "framework" in item["edit"]]
    assert others
    for candidate in others:
        edited = load_job(job).model_copy(update=candidate["edit"])
        assert read_options(edited, get_framework(candidate["edit"]["framework"]))[1] == []
    assert main(["recommend", str(job)]) == 0
    assert "\n  framework: megatron-lm\n  framework_options: {}\n  strategy:\n" in capsys.readouterr().out


def test_a_model_as_it_is_costs_less_than_gpts_of_its_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("estimate", "--gpu", "H100", "--gpus", "8", "--layers", "32", "--hidden-size", "4096", "--heads", "32")
    assert main([*sizes, "--seq-length", "8192", "--attention", "plain", "--dropout", "--output", "json"]) == 0
    gpt = json.loads(capsys.readouterr().out)
    llama = ("--kv-heads", "8", "--ffn-size", "14336", "--gated", "--no-tied", "--attention", "flash", "--no-dropout")
    assert main([*sizes, "--seq-length", "8192", "--vocab-size", "128256", *llama, "--output", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["inputs"]["model.kv_heads"] == {"value": 8, "source": "declared", "measured_at": None}
    assert made["inputs"]["model.parameters"]["value"] == pytest.approx(8030261248, rel=1e-4)
    parts, of_gpt = (item["memory_per_gpu_gb"]["parts"]["activations"] for item in (made, gpt))
    assert parts < of_gpt / 2
    assert made["step_time_s"]["value"] < gpt["step_time_s"]["value"]
    assert "fused" in made["assumes"][0]
    assert "keeps its s² matrix" in gpt["assumes"][0]
    assert main([*sizes, "--kv-heads", "5"]) == 2
    assert "32 attention heads cannot share 5 of keys and values" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ("--parameters", "7B", "--gpu", "H100", "--gpus", "16", "--zero-stage", "1", "--micro-batch", "2"),
            "Llama-like, 7B: 32 layers of 4,096, 2,048 tokens a sequence, bf16\n"
            "16 × H100-80GB on 2 nodes · 16 replicas, ZeRO 1, micro-batch 2, 32 sequences a step\n",
        ),
        (
            ("--model", "mixtral-8x7b", "--gpu", "H100", "--gpus", "16", "--tp", "8", "--sequence-parallel"),
            "mixtral-8x7b, 46.7B: 32 layers of 4,096, 8 experts a layer, 2 of them a token, "
            "8,192 tokens a sequence, bf16\n"
            "16 × H100-80GB on 2 nodes · 2 replicas, tensor 8, ZeRO 0, micro-batch 1, 2 sequences a step, "
            "sequence parallel\n",
        ),
    ],
)
def test_an_estimate_says_first_what_it_speaks_of_and_uses_no_keys(
    capsys: pytest.CaptureFixture[str], given: tuple[str, ...], told: str
) -> None:
    assert main(["estimate", *given]) == 0
    out = capsys.readouterr().out
    assert out.startswith(told)
    keys = document(capsys, "estimate", *given)["inputs"]
    assert [
        key
        for key in keys
        if re.search(rf"\b{re.escape(key)}\b", out) and key not in ("gpus", "nodes", "model.attention")
    ] == []


def test_what_would_shrink_the_largest_parts_costs_what_is_told_when_it_is_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ("--model", "llama-3-8b", "--gpu", "H100", "--gpus", "8", "--global-batch", "64", "--micro-batch", "2")
    made = document(capsys, "estimate", *given)
    assert {(item["of"], item["part"]) for item in made["remedies"]} >= {("memory", "optimizer"), ("time", "compute")}
    options = {"zero_stage": "--zero-stage", "recompute": "--recompute", "micro_batch": "--micro-batch"}
    options |= {"tensor": "--tp", "pipeline": "--pp", "precision": "--precision", "data": "--dp"}
    for item in made["remedies"]:
        typed = [
            word for name, value in item["changes"].items() if name in options for word in (options[name], str(value))
        ]
        typed += ["--sequence-parallel"] * item["changes"].get("sequence_parallel", False)
        again = document(capsys, "estimate", *given, *typed)
        assert again["memory_per_gpu_gb"]["high"] == pytest.approx(item["memory_per_gpu_gb"])
        assert again["step_time_s"]["value"] == pytest.approx(item["step_time_s"])
        assert again["fits"] is item["fits"]
        assert item["memory_before_gb"] == pytest.approx(made["memory_per_gpu_gb"]["high"])
    assert main(["estimate", *given, "--zero-stage", "3"]) == 0
    out = capsys.readouterr().out
    assert "→ recompute all activations (full): " in out
    assert "shard more" not in out
    assert "→ ZeRO 3" not in out


def test_days_and_energy_are_to_as_many_tokens_as_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--parameters", "7e9", "--gpu", "A100", "--gpus", "64", "--zero-stage", "1", "--tokens", "1e12")
    made = document(capsys, "estimate", *given)
    goal = made["goal"]
    assert (goal["tokens"], goal["tokens_are_given"]) == (1e12, True)
    assert goal["tokens_per_day"] == pytest.approx(86400 * made["tokens_per_s"])
    assert goal["hours"] == pytest.approx(1e12 / made["tokens_per_s"] / 3600)
    assert goal["energy_kwh"] == pytest.approx(goal["hours"] * 64 * 0.4)
    usual = document(capsys, "estimate", *given[:-2])["goal"]
    assert (usual["tokens"], usual["tokens_are_given"]) == (pytest.approx(140e9), False)
    assert document(capsys, "recommend", *given)["candidates"][0]["estimate"]["goal"]["tokens"] == 1e12
    assert main(["estimate", *given]) == 0
    assert "\n1T tokens " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["estimate", *given[:-1], "many"])
    assert "many is no number of tokens" in capsys.readouterr().err


def test_a_gpu_without_bf16_trains_in_fp16_and_one_without_fp8_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    v100 = ("--parameters", "1.3e9", "--gpu", "V100", "--gpus", "8")
    made = document(capsys, "estimate", *v100)
    assert made["inputs"]["layout.precision"] == {"value": "fp16", "source": "default", "measured_at": None}
    assert "fp16, since V100-32GB has no bf16" in made["assumes"]
    assert (
        document(capsys, "recommend", *v100)["candidates"][0]["estimate"]["inputs"]["layout.precision"]["value"]
        == "fp16"
    )
    asked = document(capsys, "estimate", *v100, "--precision", "bf16")
    assert [item["code"] for item in asked["findings"]] == ["precision"]
    fp8 = document(capsys, "estimate", *v100[:2], "--gpu", "A100", "--gpus", "8", "--precision", "fp8")
    assert fp8["findings"][0]["message"] == "A100-80GB has no fp8: it is counted as bf16"
    plain = document(capsys, "estimate", *v100[:2], "--gpu", "H100", "--gpus", "8", "--precision", "fp8")
    assert "precision" not in [item["code"] for item in plain["findings"]]


def test_what_no_layout_holds_is_answered_with_adapters_where_they_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--model", "llama-3-70b", "--gpu", "RTX 4090", "--gpus", "8"]) == 2
    error = capsys.readouterr().err
    assert "training all of the model needs at least" in error
    words = r"QLoRA fits, barely \(model\.lora: (\{.+?\})\): up to ([\d.]+) GB a GPU with ([\d,]+) tokens a sequence"
    said = re.search(words, error)
    assert said is not None, error
    section, high, tokens = said.groups()
    assert yaml.safe_load(section) == {"rank": 16, "bits": 4}
    whole = ("--zero-stage", "3", "--recompute", "full", "--seq-length", tokens.replace(",", ""))
    asked = (*whole, "--lora", "rank=16,bits=4", "--gpu", "RTX 4090", "--gpus", "8")
    made = document(capsys, "estimate", "--model", "llama-3-70b", *asked)
    assert made["fits"]
    assert f"{made['memory_per_gpu_gb']['high']:.1f}" == high
    assert "such GPUs would do" in error
    assert main(["recommend", "--model", "llama-3-70b", "--gpu", "RTX 4090", "--gpus", "1"]) == 2
    assert "LoRA" not in capsys.readouterr().err


def test_the_reference_shows_what_an_estimate_begins_with(capsys: pytest.CaptureFixture[str]) -> None:
    reference = (Path(__file__).parents[3] / "docs" / "reference.md").read_text(encoding="utf-8")
    shown = re.search(r"\$ dttui (estimate .*)\n((?:.+\n)+)```", reference)
    assert shown is not None
    assert main(shown[1].split()) == 0
    assert capsys.readouterr().out.startswith(shown[2])
