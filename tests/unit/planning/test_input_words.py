"""What goes into an estimate is told in words: each input, of each model that is known, has some."""

from __future__ import annotations

import pytest

from dttui.i18n import speaking
from dttui.planning.cost.assumptions import HardwareClaim, ModelClaim, assume_hardware, assume_shape, layout_inputs
from dttui.planning.cost.estimate import estimate
from dttui.planning.cost.hardware import gpu_table
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.layout_changes import change_texts, helpful_changes
from dttui.planning.input_words import WORDS, default_texts, input_text, layout_line, model_line


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "gpt-3-175b", "gemma-3-27b"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_input_has_words_and_no_key_is_shown(model: str, language: str) -> None:
    shape, of_model = assume_shape(ModelClaim(name=model))
    hardware, of_hardware = assume_hardware(HardwareClaim("H100", 64), gpu_table())
    layout = Layout(8, 8, global_batch=64, recompute="full", sequence_parallel=True)
    inputs = {**of_model, **of_hardware, **layout_inputs(layout, set(), hardware)}
    made = estimate(shape, layout, hardware, inputs)
    with speaking(language):
        told = {name: input_text(name, item.value) for name, item in made.inputs.items()}
        lines = [model_line(made), layout_line(made), *default_texts(made)]
    assert made.inputs.keys() <= WORDS.keys()
    assert not any("_" in text for text in told.values())
    assert not any("_" in line for line in lines)
    assert len(set(told.values())) >= len(told) - 1


def test_a_change_that_other_frameworks_alone_can_make_names_one_and_comes_last() -> None:
    shape, _of_model = assume_shape(ModelClaim(name="llama-3-8b"))
    hardware, _of_hardware = assume_hardware(HardwareClaim("H100", 8), gpu_table())
    layout = Layout(8, global_batch=64, micro_batch=2)
    of_ddp = change_texts(helpful_changes(shape, layout, hardware, "pytorch-ddp"), "pytorch-ddp")
    assert of_ddp["memory", "activations"][0].startswith("recompute all activations (full): ")
    assert of_ddp["memory", "optimizer"][0].endswith(", by pytorch-fsdp")
    of_any = change_texts(helpful_changes(shape, layout, hardware))
    assert not any("by " in text for texts in of_any.values() for text in texts)


def test_changes_of_a_layout_that_cannot_be_add_no_fault_of_their_own() -> None:
    shape, _of_model = assume_shape(ModelClaim(name="llama-3.1-405b"))
    hardware, _of_hardware = assume_hardware(HardwareClaim("H100", 1024), gpu_table())
    layout = Layout(8, 8, 16, global_batch=128, zero_stage=1, sequence_parallel=True)
    found = helpful_changes(shape, layout, hardware)
    assert found
    assert {change.changes.get("zero_stage", 1) for change in found} <= {0, 1}
