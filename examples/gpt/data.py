"""The text as samples: which of them a rank trains on in which step."""

from __future__ import annotations

import argparse
import hashlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:  # the name by which a type checker in the repository's root knows the file beside this one
    from examples.gpt.settings import refuse
else:
    from settings import refuse


class Samples:
    """Pieces of a text. A step's batch depends on the seed and the step alone, never on how many ranks share it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        file = options.text / "corpus.txt" if options.text.is_dir() else options.text
        try:
            data = file.read_bytes()
        except OSError as error:
            refuse(f"the text cannot be read: {error}")
        if len(data) < 2 * options.block_size:
            refuse(f"{file} has {len(data)} bytes, too few for samples of {options.block_size}")
        self.bytes = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self.digest = hashlib.sha256(data).hexdigest()

    def steps(self, epochs: int) -> int:
        """How many steps go through the whole text so often; one at least."""
        return int(max(1, epochs * len(self.bytes) // (self.options.batch_size * self.options.block_size)))

    def fewest(self, world_size: int) -> int:
        """How many samples of a step the rank has that has least."""
        shares = self.options.shares
        return int(self.options.batch_size // world_size if shares is None else min(shares))

    def share(self, step: int, rank: int, world_size: int) -> Tensor:
        """What `rank` trains on in `step`: every `world_size`-th sample, or its share; (samples, block size + 1)."""
        batch, block = self.options.batch_size, self.options.block_size
        if self.options.sharding == "random":
            dice = torch.Generator().manual_seed((self.options.data_seed * 1_000_003 + step) % 2**63)
            starts = torch.randint(len(self.bytes) - block, (batch,), generator=dice)
        else:
            starts = torch.arange((step - 1) * batch, step * batch) * block % (len(self.bytes) - block)
        shares = self.options.shares
        mine = starts[rank::world_size] if shares is None else torch.split(starts, shares)[rank]
        return torch.stack([self.bytes[start : start + block + 1] for start in mine.tolist()]).long()
