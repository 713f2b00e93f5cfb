"""A small GPT over bytes: the model alone, which knows nothing of ranks, data or checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 256
"""Every byte is a token, so any text in any language can be trained on without a tokenizer."""


INITIAL_SPREAD = 0.05
"""Standard deviation of fresh weights: wider than the usual 0.02, which suits models ten times as wide."""


@dataclass(frozen=True)
class Shape:
    """Sizes of the model; a checkpoint fits only a model of the same shape."""

    block_size: int
    """Tokens the model can look back on."""
    layers: int
    """Transformer blocks."""
    heads: int
    """Attention heads of each block."""
    width: int
    """Length of the vector that stands for one token; a multiple of `heads`."""


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each normalised first and added to its input."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = shape.heads, dropout
        self.attention_norm = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.attention_out = nn.Linear(shape.width, shape.width, bias=False)
        self.feed_forward_norm = nn.LayerNorm(shape.width)
        self.feed_forward_in = nn.Linear(shape.width, 4 * shape.width)
        self.feed_forward_out = nn.Linear(4 * shape.width, shape.width)

    def forward(self, stream: Tensor) -> Tensor:
        """Take and give (batch, time, width)."""
        batch, time, width = stream.shape
        heads = self.query_key_value(self.attention_norm(stream)).view(batch, time, 3, self.heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (batch, heads, time, width / heads)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self._dropped(self.attention_out(mixed.transpose(1, 2).reshape(batch, time, width)))
        hidden = functional.gelu(self.feed_forward_in(self.feed_forward_norm(stream)))
        return stream + self._dropped(self.feed_forward_out(hidden))

    def _dropped(self, stream: Tensor) -> Tensor:
        return functional.dropout(stream, self.dropout, self.training)


class GPT(nn.Module):
    """Predicts the next byte from the bytes before it."""

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(VOCABULARY, shape.width)
        self.positions = nn.Embedding(shape.block_size, shape.width)
        self.blocks = nn.Sequential(*(Block(shape, dropout) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        for name, parameter in self.named_parameters():
            if name.endswith("_out.weight"):  # what feeds the residual stream starts smaller the deeper the model is
                nn.init.normal_(parameter, std=INITIAL_SPREAD / math.sqrt(2 * shape.layers))
            elif name.endswith("weight") and parameter.dim() == 2:
                nn.init.normal_(parameter, std=INITIAL_SPREAD)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Take tokens (batch, time); give logits (batch, time, vocabulary)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        stream = self.blocks(self.tokens(tokens) + self.positions(positions))
        return functional.linear(self.norm(stream), self.tokens.weight)  # embedding and output share their weights

    @torch.no_grad()
    def generate(self, prompt: bytes, length: int, generator: torch.Generator, temperature: float = 0.7) -> bytes:
        """Go on from `prompt` by `length` bytes."""
        device = self.tokens.weight.device
        written = list(prompt)
        for _ in range(length):
            seen = torch.tensor([written[-self.shape.block_size :]], device=device)
            odds = functional.softmax(self(seen)[0, -1].float().cpu() / temperature, dim=0)
            written.append(int(torch.multinomial(odds, 1, generator=generator)))
        return bytes(written)
