"""The shape of a transformer: its parameters and the work of one step. Formulas of Narayanan et al. 2021."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A GPT-like decoder with four times the hidden size in its feed-forward part."""

    layers: int
    hidden_size: int
    heads: int
    seq_length: int
    vocab_size: int
    parameters: float
    """How many there are: as given, else as `parameter_count` has it."""

    @property
    def embedding_parameters(self) -> float:
        """Those of the token embedding, which the output layer shares."""
        return min(float(self.vocab_size * self.hidden_size), self.parameters)

    @property
    def layer_parameters(self) -> float:
        """Those of one layer, with its share of what is neither layer nor token embedding."""
        return (self.parameters - self.embedding_parameters) / self.layers

    def flops(self, batch: int, *, recompute: bool = False) -> float:
        """Return the floating-point operations of one step.

        72·B·s·L·h²·(1 + s/6h + V/12Lh) for forward and backward, and a third more of the layers' where they are
        computed again (Narayanan et al. 2021, equation 3 and appendix).

        Args:
            batch: sequences.
            recompute: whether every layer's forward pass is computed again.
        """
        h, s = self.hidden_size, self.seq_length
        layers = (96 if recompute else 72) * self.layers * h**2 * (1 + s / (6 * h))
        return batch * s * (layers + 6 * self.vocab_size * h)


def parameter_count(layers: int, hidden_size: int, seq_length: int, vocab_size: int) -> float:
    """Return 12·L·h²·(1 + 13/12h + (V+s)/12Lh) (Narayanan et al. 2021, equation 2)."""
    h = hidden_size
    return 12 * layers * h**2 * (1 + 13 / (12 * h) + (vocab_size + seq_length) / (12 * layers * h))


DEFAULT_SEQ_LENGTH = 2048
DEFAULT_VOCAB_SIZE = 51200

_FAMILY = (
    # layers, hidden size, heads: GPT-3's (Brown et al. 2020, Table 2.1), then those of Narayanan et al. 2021, Table 1
    (12, 768, 12),
    (24, 1024, 16),
    (24, 1536, 16),
    (24, 2048, 24),
    (32, 2560, 32),
    (32, 4096, 32),
    (40, 5120, 40),
    (48, 6144, 48),
    (48, 8192, 64),
    (60, 10240, 80),
    (80, 10240, 80),
    (96, 12288, 96),
    (96, 16384, 128),
    (105, 20480, 128),
    (128, 25600, 160),
)


def usual_shape(parameters: float, seq_length: int | None = None, vocab_size: int | None = None) -> ModelShape:
    """Return the published GPT shape whose number of parameters is nearest by ratio, with the given number."""
    s, vocabulary = seq_length or DEFAULT_SEQ_LENGTH, vocab_size or DEFAULT_VOCAB_SIZE

    def ratio(shape: tuple[int, int, int]) -> float:
        count = parameter_count(shape[0], shape[1], s, vocabulary)
        return max(count / parameters, parameters / count)

    layers, hidden, heads = min(_FAMILY, key=ratio)
    return ModelShape(layers, hidden, heads, s, vocabulary, parameters)
