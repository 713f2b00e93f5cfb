"""Models by name: what a name stands for, and that its sizes make the parameters that the makers count."""

from __future__ import annotations

import pytest

from dttui.planning.cost.assumptions import ModelClaim, UnknownAssumptionError, assume_shape
from dttui.planning.cost.shape import exact_count
from dttui.spec.known_models import all_models, filled, find_model, known_sizes, model_meant
from dttui.spec.models import Model

NAMES = [model.name for model in all_models()]

PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "qwen2.5-0.5b": 494_032_768,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "gpt-2": 124_439_808,
}
"""As the makers, or the weights themselves, have them."""


@pytest.mark.parametrize("name", NAMES)
def test_the_sizes_of_a_model_make_its_parameters(name: str) -> None:
    model = find_model(name)
    assert model is not None
    shape, _inputs = assume_shape(ModelClaim(name=name))
    assert shape.parameters == model.parameters
    # Of GPT-2 and 3, and BERT, learned positions, biases and a pooler are left out: up to 1.4% of the smallest.
    rel = 0.014 if name.startswith(("gpt-", "bert-")) and "oss" not in name else 0.001
    assert exact_count(shape) == pytest.approx(model.parameters, rel=rel)


@pytest.mark.parametrize("name", [model.name for model in all_models() if model.active is not None])
def test_of_a_model_with_experts_a_token_comes_by_what_its_makers_say(name: str) -> None:
    model = find_model(name)
    assert model is not None
    assert model.active is not None
    shape, _inputs = assume_shape(ModelClaim(name=name))
    assert shape.used_parameters == pytest.approx(model.active, rel=0.007)


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_the_parameters_are_those_that_are_published(name: str, parameters: int) -> None:
    model = find_model(name)
    assert model is not None
    assert model.parameters == parameters


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Llama 3 8B", "llama-3-8b"),
        ("google-bert/bert-base-uncased", "bert-base"),
        ("vit_b_16", "vit-b-16"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"),
        ("gpt2", "gpt-2"),
    ],
)
def test_a_model_is_found_by_what_people_and_hubs_call_it(written: str, name: str) -> None:
    found = find_model(written)
    assert found is not None
    assert found.name == name


def test_no_two_models_are_called_the_same() -> None:
    assert len({id(find_model(name)) for name in NAMES}) == len(NAMES)


def test_a_name_that_is_none_is_answered_with_the_nearest() -> None:
    assert find_model("lama-3-8b") is None
    assert model_meant("lama-3-8b") == 'did you mean "llama-3-8b"?'
    assert model_meant("squeezenet") == ""
    with pytest.raises(UnknownAssumptionError) as caught:
        assume_shape(ModelClaim(name="Lama-3-8b"))
    assert caught.value.hint.startswith('Did you mean "llama-3-8b"? Write model.parameters')


def test_a_name_is_a_name_alone_where_sizes_are_said() -> None:
    assert known_sizes("llama-3-8b", {"parameters": 1e9}) == {}
    shape, inputs = assume_shape(ModelClaim(name="llama-3-8b", parameters=1e9))
    assert shape.parameters == 1e9
    assert "model.name" not in inputs


def test_what_is_said_besides_takes_the_place_of_what_the_name_stands_for() -> None:
    shape, inputs = assume_shape(ModelClaim(name="llama-3-8b", seq_length=4096, attention="plain"))
    assert (shape.seq_length, shape.attention, shape.parameters) == (4096, "plain", 8_030_261_248)
    assert inputs["model.name"].value == "llama-3-8b"
    wider, _inputs = assume_shape(ModelClaim(name="llama-3-8b", vocab_size=256_512))
    assert wider.parameters == pytest.approx(8_030_261_248 + 2 * 128_256 * 4096, rel=1e-3)


def test_a_job_s_model_is_filled_with_what_its_name_stands_for() -> None:
    model = filled(Model(name="mixtral-8x7b", precision="fp8"))
    assert (model.layers, model.experts, model.expert_size, model.precision) == (32, 8, 14336, "fp8")
    assert filled(Model(name="mine", layers=4)) == Model(name="mine", layers=4)
