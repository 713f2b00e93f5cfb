"""The shape of a transformer: its parameters and the work of one step. Formulas of Narayanan et al. 2021.

These are of GPT's shape; what others have otherwise (fewer heads of keys and values, gates, another width of the
feed-forward part, attention that keeps no s² matrix) takes the place of its share in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dttui.spec.known_models import Convolutions
from dttui.spec.lora import Lora
from dttui.spec.models import LatentAttention

Attention = Literal["flash", "plain"]
"""Whether attention keeps its s² matrix (`plain`) or computes it block by block (Dao et al. 2022)."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder; where nothing else is said, with GPT's layers, with flash attention and no dropout."""

    layers: int
    hidden_size: int
    heads: int
    seq_length: int
    vocab_size: int
    parameters: float
    """How many there are: as given, else as `parameter_count` has it."""
    kv_heads: int | None = None
    """Heads of keys and values; `None` for as many as there are of queries."""
    head_size: int | None = None
    """Width of a head; `None` for the hidden size over the heads."""
    ffn_size: int | None = None
    """Width of the feed-forward part; `None` for four times the hidden size."""
    gated: bool = False
    """Whether a second product gates it (SwiGLU, GeGLU)."""
    tied: bool = True
    """Whether the output layer shares the token embedding."""
    attention: Attention = "flash"
    causal: bool = True
    """Whether a token attends to those before it alone."""
    dropout: bool = False
    """Whether some of what attention and feed-forward part give is dropped."""
    experts: int | None = None
    """Feed-forward parts of a layer among which each token is sent to some; `None` where there is one for all."""
    experts_per_token: int = 2
    """How many of them a token goes through."""
    expert_size: int | None = None
    """Width of one; `None` for that of the feed-forward part."""
    shared_experts: int = 0
    """Further ones of that width that all tokens go through."""
    dense_layers: int = 0
    """First layers that have a feed-forward part for all, where others have experts."""
    latent: LatentAttention | None = None
    """Sizes of attention by compressed keys and values, where it is that."""
    lora: Lora | None = None
    """Adapters that are trained in the place of all else; `None` where all is trained."""
    convolutions: Convolutions | None = None
    """Of a network of these instead: its layers are blocks of them, its vocabulary classes, and a sequence an image."""

    @property
    def query_size(self) -> float:
        """Width of all heads of queries together, which is that of what attention gives."""
        if self.latent is not None:
            return self.heads * (self.latent.head_size + self.latent.rope_size + self.latent.value_size) / 2
        return self.heads * self.head_size if self.head_size is not None else float(self.hidden_size)

    @property
    def kv_size(self) -> float:
        """Width of all heads of keys together, which is that of values."""
        return self.query_size * (self.kv_heads or self.heads) / self.heads

    @property
    def feed_forward_size(self) -> int:
        """Width of the feed-forward part."""
        return self.ffn_size if self.ffn_size is not None else 4 * self.hidden_size

    @property
    def up_size(self) -> int:
        """Width of what the first product of the feed-forward part gives, with the gates."""
        return (2 if self.gated else 1) * self.feed_forward_size

    @property
    def attended(self) -> float:
        """Share of the s² pairs of tokens whose scores are computed: with a mask, plain attention computes all."""
        return 0.5 if self.causal and self.attention == "flash" else 1.0

    @property
    def expert_share(self) -> float:
        """Share of the layers that have experts."""
        return (self.layers - self.dense_layers) / self.layers if self.experts is not None else 0.0

    @property
    def width_of_expert(self) -> int:
        """Width of one expert."""
        return self.expert_size if self.expert_size is not None else self.feed_forward_size

    @property
    def attention_weights(self) -> float:
        """Weights of the products of one layer's attention."""
        if self.latent is not None:
            return self.latent.weights(self.hidden_size, self.heads)
        return self.hidden_size * (2 * self.query_size + 2 * self.kv_size)

    @property
    def layer_weights(self) -> float:
        """Weights of the products of one layer, on average; all experts count."""
        return self._layer_weights(self.experts or 0)

    @property
    def used_layer_weights(self) -> float:
        """Those that a token comes by: of the experts these that it is sent to."""
        return self._layer_weights(self.experts_per_token)

    def _layer_weights(self, experts: int) -> float:
        if self.convolutions is not None:
            return self.layer_parameters
        rows = 3 if self.gated else 2
        dense = rows * self.hidden_size * self.feed_forward_size
        if self.experts is None:
            return self.attention_weights + dense
        one = rows * self.hidden_size * self.width_of_expert
        routed = self.hidden_size * self.experts + (experts + self.shared_experts) * one
        return self.attention_weights + (1 - self.expert_share) * dense + self.expert_share * routed

    @property
    def expert_weights(self) -> float:
        """Weights of one layer's experts that tokens are sent to, on average over all layers."""
        rows = 3 if self.gated else 2
        return self.expert_share * (self.experts or 0) * rows * self.hidden_size * self.width_of_expert

    @property
    def used_feed_forward_size(self) -> float:
        """Width of all feed-forward parts that a token goes through, on average over the layers."""
        experts = (self.experts_per_token + self.shared_experts) * self.width_of_expert
        return (1 - self.expert_share) * self.feed_forward_size + self.expert_share * experts

    @property
    def used_parameters(self) -> float:
        """Those that a token comes by, with its embedding: all but of the experts these that it is not sent to."""
        return self.parameters - self.layers * (self.layer_weights - self.used_layer_weights)

    @property
    def embedding_parameters(self) -> float:
        """Those of the token embedding."""
        return min(float(self.vocab_size * self.hidden_size), self.parameters)

    @property
    def output_parameters(self) -> float:
        """Those of the output layer, where it has its own."""
        return 0.0 if self.tied else min(self.embedding_parameters, self.parameters - self.embedding_parameters)

    @property
    def layer_parameters(self) -> float:
        """Those of one layer, with its share of what is neither layer nor token embedding nor output layer."""
        return (self.parameters - self.embedding_parameters - self.output_parameters) / self.layers

    def flops(self, batch: int, *, recompute: bool = False) -> float:
        """Return the floating-point operations of one step.

        6 a weight that a token comes by, forward and backward, and 12·s·(width of all heads) a layer for its scores,
        of which causal flash attention computes half; for GPT's shape 72·B·s·L·h²·(1 + s/6h + V/12Lh). A third more of
        the layers' where they are computed again (Narayanan et al. 2021, equation 3 and appendix). A frozen weight
        takes 4, without those for its gradient; those of adapters are a hundredth of that, and left out. A product with
        a sum of a convolution takes 6 as well.

        Args:
            batch: sequences.
            recompute: whether every layer's forward pass is computed again.
        """
        if self.convolutions is not None:
            return batch * (8 if recompute else 6) * float(self.convolutions.operations)
        s = self.seq_length
        passes = 6 if self.lora is None else 4
        scores = s * self.query_size * self.attended
        layer = passes * self.used_layer_weights + 12 * scores
        if recompute:
            layer += 2 * self.used_layer_weights + 4 * scores
        return batch * s * (self.layers * layer + passes * self.vocab_size * self.hidden_size)


def parameter_count(layers: int, hidden_size: int, seq_length: int, vocab_size: int) -> float:
    """Return 12·L·h²·(1 + 13/12h + (V+s)/12Lh) (Narayanan et al. 2021, equation 2)."""
    h = hidden_size
    return 12 * layers * h**2 * (1 + 13 / (12 * h) + (vocab_size + seq_length) / (12 * layers * h))


DEFAULT_SEQ_LENGTH = 2048
DEFAULT_VOCAB_SIZE = 51200

GROUPED_FROM = 5e9
"""Parameters from which on models usually have eight heads of keys and values alone (Ainslie et al. 2023)."""
_USUAL_WIDTH = 3.0
"""Of a gated feed-forward part, in hidden sizes: Llama's are 2.7 to 3.5."""
_FAMILY = (
    # layers, hidden size, heads: as published models of that size have them (GPT-2 and 3, Qwen, Llama), or between them
    (8, 512, 8),
    (10, 640, 10),
    (12, 768, 12),
    (16, 1024, 16),
    (24, 1024, 16),
    (24, 1536, 24),
    (24, 2048, 16),
    (32, 2560, 20),
    (32, 3072, 24),
    (32, 4096, 32),
    (40, 5120, 40),
    (64, 5120, 40),
    (64, 6144, 48),
    (80, 8192, 64),
    (96, 10240, 80),
    (96, 12288, 96),
    (96, 14336, 112),
    (128, 16384, 128),
    (128, 20480, 160),
    (128, 24576, 192),
)


def usual_shape(parameters: float, seq_length: int | None = None, vocab_size: int | None = None) -> ModelShape:
    """Return a decoder as they are usual at a number of parameters, with a feed-forward part that makes it that many.

    Gated; of the layers and hidden sizes of published models it has those with which the feed-forward part comes
    nearest to the usual width.
    """
    shapes = (_with_parameters(member, parameters, seq_length, vocab_size) for member in _FAMILY)
    return min(shapes, key=_strangeness)


def _with_parameters(
    member: tuple[int, int, int], parameters: float, seq_length: int | None, vocab_size: int | None
) -> ModelShape:
    layers, hidden, heads = member
    blank = ModelShape(
        layers,
        hidden,
        heads,
        seq_length or DEFAULT_SEQ_LENGTH,
        vocab_size or DEFAULT_VOCAB_SIZE,
        parameters,
        kv_heads=8 if parameters >= GROUPED_FROM and heads % 8 == 0 else None,
        gated=True,
    )
    return replace(blank, ffn_size=max(fitting_ffn_size(blank), 1))


def _strangeness(shape: ModelShape) -> float:
    width = shape.feed_forward_size / shape.hidden_size / _USUAL_WIDTH
    return max(width, 1 / width)


def fitting_ffn_size(shape: ModelShape) -> int:
    """Return the width of the feed-forward part with which a shape has its parameters; 0 or less where none does."""
    dense = 1 - shape.expert_share
    if not dense:
        return 0
    rest = shape.parameters - exact_count(replace(shape, ffn_size=0, expert_size=shape.width_of_expert))
    return round(rest / (shape.layers * shape.hidden_size * dense * (3 if shape.gated else 2)))


def exact_count(shape: ModelShape) -> float:
    """Return how many parameters a shape has: its products, embeddings, and two norms without bias a layer."""
    if shape.convolutions is not None:
        return shape.parameters  # As its program counts them.
    embeddings = (1 if shape.tied else 2) * shape.vocab_size * shape.hidden_size
    return shape.layers * (shape.layer_weights + 2 * shape.hidden_size) + embeddings + shape.hidden_size
