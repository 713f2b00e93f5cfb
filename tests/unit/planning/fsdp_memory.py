"""Prints what torch's own tracker says fully sharded GPTs need a rank, in bytes by kind. No GPU, one process.

Usage: python fsdp_memory.py RANKS JSON
where JSON is a list of [layers, hidden, heads, sequence length, vocabulary, micro-batch]; a line is printed for each.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy, gelu
from torch.testing._internal.distributed.fake_pg import FakeStore


def drop(activations: Tensor) -> Tensor:
    """Dropout as GPUs have it: a mask of one byte an element is kept."""
    return activations * (torch.rand_like(activations, dtype=torch.float32) > 0.1)


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.qkv(self.before_attention(hidden)).split(width, -1)
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts
        )
        scores = drop(torch.softmax(query @ key.transpose(-1, -2), -1))
        hidden = hidden + drop(self.out((scores @ value).transpose(1, 2).reshape(batch, length, width)))
        return hidden + drop(self.down(gelu(self.up(self.before_mlp(hidden)))))


class Gpt(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


def peak(ranks: int, layers: int, hidden: int, heads: int, length: int, vocabulary: int, batch: int) -> dict[str, int]:
    mesh = init_device_mesh("cpu", (ranks,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with FakeTensorMode():
        model = Gpt(layers, hidden, heads, length, vocabulary)
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs(())
        tokens = torch.randint(0, vocabulary, (batch, length))
        with tracker:
            for step in range(2):
                loss = cross_entropy(model(tokens).float().view(-1, vocabulary), tokens.view(-1))
                torch.autograd.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                if step == 0:  # Adam makes its states in the first step
                    tracker.reset_mod_stats()
        snapshot = next(iter(tracker.get_tracker_snapshot("peak").values()))
    return {getattr(kind, "name", str(kind)): int(size) for kind, size in snapshot.items()}


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    for shape in json.loads(sys.argv[2]):
        print(json.dumps(peak(ranks, *shape)))
    dist.destroy_process_group()
