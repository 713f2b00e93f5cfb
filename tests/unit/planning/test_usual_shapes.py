"""What a number of parameters alone is taken to be, and what a framework's own arguments say of a model."""

from __future__ import annotations

from typing import Any

import pytest

from dttui.planning.cost.assumptions import ModelClaim, assume_shape
from dttui.planning.cost.shape import exact_count, usual_shape
from dttui.planning.costing import model_shape
from tests.unit.seed_cluster import make_job

SIZES = [1e8 * 10 ** (step / 40) for step in range(161)]
"""100 M to 1 T, forty of them from one power of ten to the next."""


@pytest.mark.parametrize("seq_length", [None, 1024, 8192])
def test_a_number_of_parameters_gives_a_model_shape_so_many_at_every_size(seq_length: int | None) -> None:
    for parameters in SIZES:
        assert exact_count(usual_shape(parameters, seq_length)) == pytest.approx(parameters, rel=0.02), parameters


@pytest.mark.parametrize("vocabulary", [None, 32_000, 128_256])
def test_its_products_with_weights_take_six_operations_a_parameter_and_token(vocabulary: int | None) -> None:
    # 6N counts no scores (Kaplan et al. 2020): with one token of context there are next to none.
    for parameters in SIZES:
        if vocabulary != 128_256 or parameters > 2e8:
            per_token = usual_shape(parameters, 1, vocabulary).flops(1)
            assert per_token == pytest.approx(6 * parameters, rel=0.05), parameters


def test_with_scores_and_2048_tokens_it_is_so_from_seven_billion_on() -> None:
    for parameters in (size for size in SIZES if size >= 7e9):
        assert usual_shape(parameters).flops(1) / 2048 == pytest.approx(6 * parameters, rel=0.05), parameters


def test_a_model_shape_today_is_gated_and_keeps_no_scores_and_groups_heads_where_it_is_large() -> None:
    small, large = usual_shape(1.3e9), usual_shape(70e9)
    assert (small.gated, small.attention, small.dropout, small.kv_heads) == (True, "flash", False, None)
    assert (large.layers, large.hidden_size, large.heads, large.kv_heads) == (80, 8192, 64, 8)


@pytest.mark.parametrize("parameters", [1.3e9, 7e9, 70e9, 405e9])
def test_its_feed_forward_part_is_as_wide_as_published_ones(parameters: float) -> None:
    shape = usual_shape(parameters)
    assert 2 < shape.feed_forward_size / shape.hidden_size < 4.5


def test_heads_that_eight_do_not_divide_have_keys_of_their_own() -> None:
    shape, inputs = assume_shape(ModelClaim(parameters=7e9, heads=20))
    assert (shape.kv_heads, inputs["model.kv_heads"].value) == (None, 20)
    assert exact_count(shape) == pytest.approx(7e9, rel=0.02)


def test_every_number_of_a_shape_is_told_with_where_it_is_from() -> None:
    _shape, inputs = assume_shape(ModelClaim(parameters=7e9, attention="plain"))
    assert (inputs["model.attention"].value, inputs["model.attention"].source) == ("plain", "declared")
    assert (inputs["model.gated"].value, inputs["model.gated"].source) == (True, "default")


@pytest.mark.parametrize(
    ("arguments", "attention", "dropout"),
    [
        ({}, "flash", True),
        ({"attention_backend": "unfused"}, "plain", True),
        ({"transformer_impl": "local", "hidden_dropout": 0, "attention_dropout": 0.0}, "plain", False),
        ({"transformer_impl": "local", "use_flash_attn": True}, "flash", True),
    ],
)
def test_attention_and_dropout_are_as_megatrons_arguments_say(
    arguments: dict[str, Any], attention: str, dropout: bool
) -> None:
    job = make_job("a", framework="megatron-lm", model={"parameters": 1e9}, framework_options={"arguments": arguments})
    shape, inputs = model_shape(job)
    assert (shape.attention, shape.dropout) == (attention, dropout)
    assert inputs["model.attention"].source == "default"


def test_what_a_job_says_of_its_model_goes_before_its_frameworks_arguments() -> None:
    job = make_job("a", framework="megatron-lm", model={"parameters": 1e9, "attention": "plain", "dropout": False})
    shape, _inputs = model_shape(job)
    assert (shape.attention, shape.dropout) == ("plain", False)
