"""Prints what torch's own tracker says decoders need in training, in bytes by kind. No GPU, one process.

Usage: python decoder_memory.py JSON
where JSON is a list of cases, each the fields of `Case`; a line is printed for each. Tensors are fake, but of a case
that is real: they have sizes and no content, so that nothing is computed. Two micro-batches are accumulated, so that
the gradients of the first are there while the second has its activations, which is what the estimate adds up.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy, gelu, linear, scaled_dot_product_attention, silu
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

ATTENTION = ("q", "k", "v", "o")
MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


@dataclass(frozen=True)
class Case:
    """A decoder and how it is trained."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    length: int
    batch: int
    gated: bool = True
    attention: str = "flash"
    dropout: bool = False
    recompute: str = "none"
    weights: str = "pure"
    """`pure`: all in bf16; `autocast`: in fp32, and cast for products; `fp32`, of which FSDP2 gathers bf16."""
    rank: int = 0
    """Of adapters, beside which all else is frozen."""
    targets: str = "all"
    foreach: bool = False
    """Whether Adam goes over lists of parameters, as it does on GPUs by default, and not by one fused kernel."""
    ranks: int = 1
    """More than one share out all parameters (FSDP2)."""
    real: bool = False
    """Whether it is computed; then the peak is what torch's allocator had handed out, in all."""


def drop(activations: Tensor) -> Tensor:
    """Dropout as GPUs have it: a mask of one byte an element is kept."""
    return activations * (torch.rand_like(activations, dtype=torch.float32) > 0.1)


class Product(nn.Module):
    """A product with weights, and with an adapter beside them where it has one (Hu et al. 2021)."""

    def __init__(self, rows: int, columns: int, rank: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(columns, rows))
        sizes = ((rank, rows), (columns, rank)) if rank else ()
        self.lora = nn.ParameterList(nn.Parameter(torch.empty(*size)) for size in sizes)

    def forward(self, given: Tensor) -> Tensor:
        plain = linear(given, self.weight)
        if not len(self.lora):
            return plain
        narrow, wide = self.lora
        return plain + linear(linear(given, narrow), wide) * 2.0


class Block(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        h, kv, f = case.hidden, case.hidden * case.kv_heads // case.heads, case.ffn
        self.norms = nn.ModuleList(nn.LayerNorm(h, bias=False) for _ in range(2))
        sizes = {"q": (h, h), "k": (h, kv), "v": (h, kv), "o": (h, h), "up": (h, f), "down": (f, h)}
        if case.gated:
            sizes["gate"] = (h, f)
        else:
            sizes = {"qkv": (h, h + 2 * kv), **{name: size for name, size in sizes.items() if name not in "qkv"}}
        self.products = nn.ModuleDict({name: Product(*size, self._rank(name)) for name, size in sizes.items()})

    def _rank(self, name: str) -> int:
        return self.case.rank if self.case.targets == "all" or name in ATTENTION else 0

    def forward(self, hidden: Tensor) -> Tensor:
        case, products = self.case, self.products
        batch, length, width = hidden.shape
        normed = self.norms[0](hidden)
        if case.gated:
            query, key, value = (products[name](normed) for name in ("q", "k", "v"))
        else:
            kv = width * case.kv_heads // case.heads
            query, key, value = products["qkv"](normed).split((width, kv, kv), -1)
        size = width // case.heads
        query, key, value = (part.view(batch, length, -1, size).transpose(1, 2) for part in (query, key, value))
        again = case.recompute == "selective"
        mixed = (
            checkpoint(self.attend, query, key, value, use_reentrant=False) if again else self.attend(query, key, value)
        )
        hidden = hidden + self._dropped(products["o"](mixed.transpose(1, 2).reshape(batch, length, width)))
        normed = self.norms[1](hidden)
        wide = products["up"](normed)
        wide = silu(products["gate"](normed)) * wide if case.gated else gelu(wide)
        return hidden + self._dropped(products["down"](wide))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self.case.attention == "flash":
            return scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        # A GPU's autocast has softmax in fp32, a CPU's has not.
        kind = torch.float32 if self.case.weights == "autocast" else None
        return self._dropped(torch.softmax(query @ key.transpose(-1, -2), -1, kind)) @ value

    def _dropped(self, given: Tensor) -> Tensor:
        return drop(given) if self.case.dropout else given


class Decoder(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.tokens = nn.Embedding(case.vocabulary, case.hidden)
        self.blocks = nn.ModuleList(Block(case) for _ in range(case.layers))
        self.norm, self.head = nn.LayerNorm(case.hidden, bias=False), Product(case.hidden, case.vocabulary, 0)
        if case.rank:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_(".lora." in name)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens)
        if self.case.rank:
            hidden.requires_grad_()  # As programs have it that compute layers again.
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False) if self.case.recompute == "full" else block(hidden)
        logits: Tensor = self.head(self.norm(hidden))
        return cross_entropy(logits.float().view(-1, self.case.vocabulary), tokens.view(-1))


def skip_frozen(name: str) -> Callable[[], None]:
    """Have a way to watch a tensor pass over those that need no gradient, which the tracker would watch too."""
    real, unused = getattr(Tensor, name), torch.empty(0, requires_grad=True)

    def register(tensor: Tensor, hook: Any) -> Any:
        return real(tensor if tensor.requires_grad else unused, hook)

    setattr(Tensor, name, register)
    return lambda: setattr(Tensor, name, real)


def made(case: Case) -> Decoder:
    """Return a decoder with weights in the precision of a case."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if case.weights == "pure" else torch.float32)
    try:
        return Decoder(case)
    finally:
        torch.set_default_dtype(usual)


def peak(case: Case) -> dict[str, int]:
    """Return what is there at the peak of the second step."""
    mesh = init_device_mesh("cpu", (case.ranks,)) if case.ranks > 1 else None
    with FakeTensorMode():
        model = made(case)
        if case.ranks > 1:
            for block in model.blocks:
                fully_shard(block, mesh=mesh, mp_policy=MIXED)
            fully_shard(model, mesh=mesh, mp_policy=MIXED)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.Adam(trained, foreach=case.foreach, fused=not case.foreach)
        tokens = torch.randint(0, case.vocabulary, (case.batch, case.length))
        cast = torch.autocast("cpu", torch.bfloat16) if case.weights == "autocast" else nullcontext()

        def train() -> None:
            with cast:
                loss = model(tokens)
            torch.autograd.backward(loss)

        train()
        optimizer.step()  # Makes the states.
        optimizer.zero_grad()
        tracker = FSDPMemTracker(model, optimizer) if case.ranks > 1 else MemTracker()
        if isinstance(tracker, FSDPMemTracker):
            tracker.track_inputs(())
        else:
            tracker.track_external(model, optimizer)
        with tracker:
            train()
            tracker.reset_mod_stats()
            train()
            if case.ranks == 1:  # Of shards the tracker sees in a step more than there is.
                optimizer.step()
        snapshot = next(iter(tracker.get_tracker_snapshot("peak").values()))
    return {getattr(kind, "name", str(kind)): int(size) for kind, size in snapshot.items()}


def real_peak(case: Case) -> dict[str, int]:
    """Return the most that torch's allocator had handed out at a time, of two steps on the CPU."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        model = made(case)
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        for _step in range(2):
            for _micro_batch in range(2):
                tokens = torch.randint(0, case.vocabulary, (case.batch, case.length))
                torch.autograd.backward(model(tokens))
            optimizer.step()
            optimizer.zero_grad()
    results = found.profiler.kineto_results if found.profiler is not None else None
    events = [event for event in results.events() if event.name() == "[memory]"] if results is not None else []
    sizes = accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    return {"Total": max(sizes)}


if __name__ == "__main__":
    restores = [skip_frozen(name) for name in ("register_hook", "register_post_accumulate_grad_hook")]
    for case in (Case(**fields) for fields in json.loads(sys.argv[1])):
        if case.ranks > 1:
            dist.init_process_group("fake", rank=0, world_size=case.ranks, store=FakeStore())
        print(json.dumps(real_peak(case) if case.real else peak(case)), flush=True)
        if case.ranks > 1:
            dist.destroy_process_group()
    for restore in restores:
        restore()
