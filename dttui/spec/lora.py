"""Training by adapters (LoRA, QLoRA): what a job says of them. What they cost is for estimates."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from dttui.spec.section import MOST_COUNT, Section

LoraTarget = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""Products with weights of a layer, by the names that Llama's programs have for them."""
_ATTENTION: tuple[LoraTarget, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")


class Lora(Section):
    """Adapters that are trained in the place of the weights, which are frozen (Hu et al. 2021)."""

    rank: int = Field(gt=0, le=MOST_COUNT)
    """Width of an adapter."""
    targets: Literal["all", "attention"] | tuple[LoraTarget, ...] = Field(default="all", min_length=1)
    """Products that have one: all of a layer, those of attention, or these by name."""
    bits: Literal[4, 8] | None = None
    """Of a frozen weight (QLoRA, Dettmers et al. 2023); by default it is kept in the model's precision."""

    @property
    def names(self) -> frozenset[str]:
        """The products that have an adapter."""
        if self.targets == "all":
            return frozenset(get_args(LoraTarget))
        return frozenset(_ATTENTION if self.targets == "attention" else self.targets)

    @property
    def text(self) -> str:
        """As `--lora` takes it: `rank=16,targets=all,bits=4`."""
        targets = self.targets if isinstance(self.targets, str) else "+".join(self.targets)
        return f"rank={self.rank},targets={targets}" + (f",bits={self.bits}" if self.bits is not None else "")
