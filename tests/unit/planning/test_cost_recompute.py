"""Recomputation by parts of a layer, inputs in fp8, power limits, and short dimensions of products."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dttui.planning.cost.activations import activation_bytes_per_layer
from dttui.planning.cost.efficiency import efficiency_of
from dttui.planning.cost.hardware import Hardware, default_links, gpu_table
from dttui.planning.cost.kernels import Kernels
from dttui.planning.cost.layer_time import layer_time
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.memory import memory_per_gpu
from dttui.planning.cost.shape import ModelShape
from dttui.spec.models import LatentAttention
from tests.unit.planning.counted_jobs import estimated, job

S, H, F, KV = 4096, 4096, 14336, 1024
LLAMA = ModelShape(32, H, 32, S, 128256, 8.03e9, 8, None, F, True, False)
EXPERT = replace(LLAMA, experts=8, experts_per_token=2, shared_experts=1, expert_size=2048, dense_layers=8)
LATENT = LatentAttention(q_rank=1536, kv_rank=512, head_size=128, rope_size=64, value_size=128)


def kept(shape: ModelShape, *modules: str, **fields: object) -> float:
    """Bytes a token of one layer."""
    again = {"recompute": "selective", "recompute_modules": frozenset(modules)} if modules else {}
    return activation_bytes_per_layer(shape, replace(Layout(), **again, **fields)) / S  # type: ignore[arg-type]  # fields


@pytest.mark.parametrize(
    ("shape", "modules", "freed"),
    [
        (LLAMA, ("core_attn",), 4 * 32),
        (LLAMA, ("layernorm",), 4 * H),
        (LLAMA, ("mlp_act",), 2 * F),
        (LLAMA, ("mlp",), 6 * F),
        (LLAMA, ("layernorm", "mlp_act"), 4 * H + 2 * F),
        (LLAMA, ("mlp", "mlp_act"), 6 * F),
        (LLAMA, ("products",), 4 * H + 2 * KV + 4 * F),
        (LLAMA, ("moe", "moe_act", "mla_up_proj_of_another_name"), 0),
        (EXPERT, ("moe_act",), 0.75 * 2 * 2 * 2048),
        (EXPERT, ("moe",), 0.75 * (2 * 2 * H + 6 * 3 * 2048)),
        (EXPERT, ("shared_experts",), 0.75 * 6 * 2048),
        (EXPERT, ("mlp",), 0.25 * 6 * F),
        (replace(LLAMA, latent=LATENT, kv_heads=None), ("mla_up_proj",), 6 * 32 * 160),
    ],
    ids=str,
)
def test_what_is_computed_again_is_not_kept(shape: ModelShape, modules: tuple[str, ...], freed: float) -> None:
    assert kept(shape) - kept(shape, *modules) == pytest.approx(freed)


@pytest.mark.parametrize("modules", [("layernorm",), ("mlp",), ("mlp_act",), ("products",), ("core_attn",)], ids=str)
def test_what_is_computed_again_takes_time_and_never_as_long_as_all_of_it(modules: tuple[str, ...]) -> None:
    hardware = on("H100")
    layout = Layout(recompute="selective", recompute_modules=frozenset(modules))
    again = layer_time(LLAMA, layout, hardware).again
    assert 0 < again < layer_time(LLAMA, replace(layout, recompute="full"), hardware).again


def test_every_second_product_of_llama_is_two_fifths_of_its_operations() -> None:
    """Keys, attention's result and what a gate multiplies: (h·kv + h² + h·f) / (2h² + 2h·kv + 3h·f)."""
    hardware = on("H100")
    whole = layer_time(LLAMA, Layout(recompute="full"), hardware)
    part = layer_time(LLAMA, Layout(recompute="selective", recompute_modules=frozenset({"products"})), hardware)
    products = whole.weights * (H * KV + H * H + H * F) / (2 * H * H + 2 * H * KV + 3 * H * F)
    moved = whole.forward - whole.weights - layer_time(LLAMA, Layout(recompute="selective"), hardware).again
    assert part.again == pytest.approx(products + moved)


def test_a_product_in_fp8_keeps_its_input_in_a_byte() -> None:
    """Both norms' results and the activation's; attention keeps its own beside that of the product after it."""
    assert kept(LLAMA) - kept(LLAMA, precision="fp8") == pytest.approx(2 * H + F - H)


def test_a_layer_that_is_computed_again_keeps_a_ranks_own_part_of_a_split_sequence() -> None:
    whole, split = (
        activation_bytes_per_layer(LLAMA, Layout(tensor=8, recompute="full", sequence_parallel=is_split))
        for is_split in (False, True)
    )
    assert (whole, split) == (2 * S * H, 2 * S * H / 8)


def test_what_a_job_recomputes_by_megatron_lms_names_is_counted_and_named() -> None:
    degrees = {"strategy": {"recomputation": "selective"}}
    modules = {"recompute_modules": ["core_attn", "layernorm"]}
    usual = estimated(job(**degrees))
    named = estimated(job(**degrees, framework_options={"arguments": modules}))
    assert named.memory_per_gpu_gb.parts["activations"] < usual.memory_per_gpu_gb.parts["activations"]
    assert named.step_time_s.parts["recompute"] > usual.step_time_s.parts["recompute"]
    assert "layout.recompute_modules" not in usual.inputs
    assert named.inputs["layout.recompute_modules"].value == "core_attn layernorm"


def test_a_power_limit_takes_the_cube_root_of_what_it_leaves() -> None:
    whole = efficiency_of("H100")
    half = whole.limited(0.5)
    for name in ("matmul", "flash", "tuned_flash", "fp8_matmul"):
        assert getattr(half, name) == pytest.approx(getattr(whole, name) * 0.5 ** (1 / 3))
    assert (half.memory, half.intra_node) == (whole.memory, whole.intra_node)
    assert whole.limited(1.2) == whole


def test_short_dimensions_of_a_product_cost_more_on_blackwell() -> None:
    """1 + ramp/3·(1/rows + 1/inner + 1/columns), twice the ramp in fp8."""
    hardware = on("B200")
    found = efficiency_of("B200")
    for precision, times in (("bf16", 1), ("fp8", 2)):
        kernel = Kernels(hardware, Layout(precision=precision))  # type: ignore[arg-type]  # the two above
        peak = hardware.gpu.peak_flops(precision) * (found.matmul if precision == "bf16" else found.fp8_matmul)  # type: ignore[arg-type]
        for size in (1024, 8192):
            moved = 3 * size * size * 2 / (hardware.gpu.memory_bandwidth * 1e9 * found.memory) + found.kernel_s
            seconds = kernel.product(size, size, size) - moved
            assert seconds == pytest.approx(2 * size**3 / peak * (1 + times * found.matmul_ramp / size))


def test_llama_8b_as_torchtitan_trains_it_takes_the_memory_that_it_was_seen_to_take() -> None:
    """82.5, 77.2 and 71.5 GB of the worst rank on 8 and 128 H100 (benchmarks/llama3_h100_202412_torchtitan.md)."""
    shape = replace(LLAMA, seq_length=8192)
    layout = Layout(
        8, micro_batch=2, global_batch=16, zero_stage=3, recompute="selective", precision="fp8", compiled=True,
        recompute_modules=frozenset({"products"}),
    )  # fmt: skip
    found = memory_per_gpu(shape, layout)
    assert found.low < 82.5e9 < found.high
    assert memory_per_gpu(shape, replace(layout, recompute="none")).low > 88e9


def on(name: str) -> Hardware:
    gpu = gpu_table().find(name)
    assert gpu is not None
    return Hardware(gpu, 8, 8, *default_links(gpu))
