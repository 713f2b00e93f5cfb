"""config.json of Hugging Face's hub: what is read of it, and what is said of one that is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dttui.cli import main
from dttui.errors import UsageError
from dttui.launch.local_plan import make_local_plan
from dttui.planning.cost.assumptions import ModelClaim, assume_shape
from dttui.planning.submission import Submission
from dttui.spec.hub_config import is_config, read_config, sizes_of, with_config
from dttui.spec.models import Model
from tests.unit.seed_cluster import SEED, make_job

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "attention_dropout": 0.0,
}
GPT_2 = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "n_inner": None,
    "activation_function": "gelu_new",
    "vocab_size": 50257,
    "attn_pdrop": 0.1,
}
QWEN_3_30B = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "hidden_act": "silu",
}


def written(folder: Path, document: Any) -> Path:
    path = folder / "config.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("document", "parameters"),
    [
        (LLAMA, 8_030_261_248),
        (GPT_2, 124_439_808),
        (QWEN_3_30B, 30_532_122_624),
        (DEEPSEEK_V3, 671_026_404_352),
        ({"model_type": "llava", "text_config": LLAMA}, 8_030_261_248),
    ],
    ids=["llama", "gpt-2", "experts", "latent attention", "text of several kinds"],
)
def test_a_configuration_makes_the_parameters_of_its_model(document: dict[str, Any], parameters: int) -> None:
    shape, _inputs = assume_shape(ModelClaim(**sizes_of(document, "config.json")))
    assert shape.parameters == pytest.approx(parameters, rel=0.01)


def test_what_is_no_size_is_read_as_well() -> None:
    llama, gpt = sizes_of(LLAMA, "a"), sizes_of(GPT_2, "b")
    assert (llama["gated"], llama["tied"], llama["dropout"], llama["causal"]) == (True, False, False, True)
    assert (gpt["gated"], gpt["tied"], gpt["dropout"], gpt["seq_length"]) == (False, True, True, 1024)
    assert llama["seq_length"] == 4096  # Of 131,072 that it may have.
    assert sizes_of(GPT_2 | {"model_type": "bert"}, "c")["causal"] is False


@pytest.mark.parametrize(
    ("change", "told", "remedy"),
    [
        ({"hidden_size": None}, "hidden_size is missing", "Add it, or give --hidden-size."),
        ({"num_hidden_layers": "32"}, 'num_hidden_layers: "32" is no whole number from 1', "Correct it"),
        ({"num_hidden_layers": True}, "num_hidden_layers: true is no whole number", "Correct it"),
        ({"intermediate_size": -1}, "intermediate_size: -1 is no whole number from 0", "Correct it"),
        ({"vocab_size": 10**30}, "vocab_size: ", "Correct it"),
        ({"num_key_value_heads": 5}, "5 does not divide the 32 attention heads", "Take a number that divides them."),
        ({"tie_word_embeddings": "no"}, 'tie_word_embeddings: "no" is neither true nor false', "Correct it"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder", "--parameters"),
        ({"num_experts": 4, "num_experts_per_tok": 8}, "cannot go through 8 of 4 experts", "num_experts_per_tok"),
        ({"kv_lora_rank": 512}, "qk_nope_head_dim is missing", "latent attention"),
    ],
)
def test_what_is_wrong_is_told_with_file_key_and_remedy(change: dict[str, Any], told: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        sizes_of(LLAMA | change, "models/config.json")
    assert caught.value.message.startswith("models/config.json: ")
    assert told in caught.value.message
    assert remedy in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "told"),
    [("{", "no JSON"), ("[1]", "expected an object, {…}, found"), ("[" * 100_000, "no JSON"), ("", "no JSON")],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=r"config\.json") as caught:
        read_config(written(tmp_path, text))
    assert told in caught.value.message
    assert caught.value.hint


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file") as caught:
        read_config(tmp_path / "absent.json")
    assert "config.json" in (caught.value.hint or "")


def test_a_directory_stands_for_the_configuration_in_it(tmp_path: Path) -> None:
    written(tmp_path, LLAMA)
    assert is_config(str(tmp_path))
    assert not is_config("llama-3-8b")
    assert read_config(tmp_path)["layers"] == 32


def test_a_job_has_the_sizes_of_its_configuration_where_it_says_none(tmp_path: Path) -> None:
    written(tmp_path, LLAMA)
    job = make_job("a", model=Model(config="config.json", seq_length=2048))
    model = with_config(job, tmp_path).model
    assert model is not None
    assert (model.layers, model.kv_heads, model.seq_length, model.config) == (32, 8, 2048, None)
    bare = make_job("a", model=Model(parameters=1e9))
    assert with_config(bare, tmp_path) is bare


def test_a_plan_reads_the_configuration_of_its_job_or_warns(tmp_path: Path) -> None:
    job = make_job("llm-training-env", model=Model(config="config.json"))
    absent = make_local_plan(Submission(job, SEED, tmp_path))
    assert absent.estimate is None
    told = {finding.code: finding for finding in absent.findings}
    assert "no such file" in told["model-config"].message
    assert "model.config" in told["no-estimate"].message
    written(tmp_path, LLAMA)
    plan = make_local_plan(Submission(job, SEED, tmp_path))
    assert plan.estimate is not None
    assert plan.estimate.inputs["model.layers"].value == 32


def test_an_estimate_takes_a_configuration_and_what_is_said_besides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path, LLAMA))
    given = ("--gpu", "H100", "--gpus", "8", "--zero-stage", "3", "--output", "json")
    assert main(["estimate", "--model", path, *given]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["inputs"]["model.parameters"]["value"] == pytest.approx(8_030_261_248, rel=1e-3)
    assert whole["inputs"]["model.kv_heads"]["value"] == 8
    assert main(["estimate", "--model", path, "--layers", "16", *given]) == 0
    half = json.loads(capsys.readouterr().out)
    assert half["inputs"]["model.parameters"]["value"] < 5e9


def test_an_estimate_takes_a_known_model_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--gpu", "H100", "--gpus", "64", "--zero-stage", "3")
    assert main(["estimate", "--model", "llama-3-8b", *given, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"]["model.name"]["value"] == "llama-3-8b"
    assert main(["estimate", "--model", "lama-3-8b", *given]) == 2
    told = capsys.readouterr().err
    assert 'no model "lama-3-8b" is known' in told
    assert 'Did you mean "llama-3-8b"?' in told
    assert main(["estimate", "--model", "llama-3-8b", "--parameters", "7e9", *given]) == 2
    assert "--parameters: the model llama-3-8b has its own" in capsys.readouterr().err


VIT = {
    "model_type": "vit",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "image_size": 224,
    "patch_size": 16,
}


def test_the_tokens_of_an_image_are_its_patches() -> None:
    sizes = sizes_of({**VIT, "id2label": {"0": "cat", "1": "dog"}}, "config.json")
    assert (sizes["seq_length"], sizes["vocab_size"], sizes["causal"]) == (197, 2, False)
    assert sizes_of(VIT, "config.json")["vocab_size"] == 1000


def test_a_network_of_convolutions_is_told_to_be_none_that_is_estimated() -> None:
    for kind, hint in (("resnet", "Name it instead, such as resnet-50."), ("convnext", "Launch it without")):
        network = {"model_type": kind, "depths": [3, 4, 6, 3], "hidden_sizes": [256, 512, 1024, 2048]}
        with pytest.raises(UsageError, match="not of convolutions") as error:
            sizes_of(network, "config.json")
        assert error.value.hint.startswith(hint)
