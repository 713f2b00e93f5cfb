"""Prints what torch counts of ResNets, a line of JSON for each: parameters, operations, values, and bytes kept.

Networks are of He et al. 2016, Table 1, with the stride in a block's 3×3; tensors have sizes and no content.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

NETWORKS = {
    "resnet-18": (False, (2, 2, 2, 2)),
    "resnet-34": (False, (3, 4, 6, 3)),
    "resnet-50": (True, (3, 4, 6, 3)),
    "resnet-101": (True, (3, 4, 23, 3)),
    "resnet-152": (True, (3, 8, 36, 3)),
}
IMAGES = 4


class Block(nn.Module):
    """Convolutions, each with its batch norm, whose result is added to what went in."""

    def __init__(self, taken: int, width: int, stride: int, *, is_bottleneck: bool) -> None:
        super().__init__()
        given = 4 * width if is_bottleneck else width
        sizes = [(taken, width, 3, stride), (width, width, 3, 1)]
        if is_bottleneck:
            sizes = [(taken, width, 1, 1), (width, width, 3, stride), (width, given, 1, 1)]
        self.parts = nn.ModuleList(convolution(*size) for size in sizes)
        self.shortcut = convolution(taken, given, 1, stride) if stride > 1 or taken != given else nn.Identity()

    def forward(self, given: Tensor) -> Tensor:
        found = given
        for part in self.parts[:-1]:
            found = torch.relu_(part(found))
        return torch.relu_(self.parts[-1](found) + self.shortcut(given))


def convolution(taken: int, given: int, side: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(taken, given, side, stride, side // 2, bias=False), nn.BatchNorm2d(given))


def network(counts: Sequence[int], *, is_bottleneck: bool) -> nn.Sequential:
    first = nn.Sequential(convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    blocks, taken = [], 64
    for place, count in enumerate(counts):
        width = 64 << place
        for block in range(count):
            blocks.append(Block(taken, width, 2 if place and not block else 1, is_bottleneck=is_bottleneck))
            taken = 4 * width if is_bottleneck else width
    return nn.Sequential(first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(taken, 1000))


def counts_of(model: nn.Module) -> dict[str, int]:
    values = 0
    kept: dict[int, torch.UntypedStorage] = {}

    def add(_module: nn.Module, _taken: object, given: Tensor) -> None:
        nonlocal values
        values += given.numel() // IMAGES

    def keep(saved: Tensor) -> Tensor:
        if not isinstance(saved, nn.Parameter):
            storage = saved.untyped_storage()
            kept[id(storage)] = storage
        return saved

    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(add)
    images = torch.empty(IMAGES, 3, 224, 224, device="meta")
    with FlopCounterMode(display=False) as counter, saved_tensors_hooks(keep, lambda saved: saved):
        result = model(images)
    operations = counter.get_flop_counts()["Global"][torch.ops.aten.convolution] // 2 // IMAGES
    assert result.shape == (IMAGES, 1000)
    return {
        "parameters": sum(one.numel() for one in model.parameters()),
        "operations": operations,
        "values": values,
        "kept": sum(one.nbytes() for one in kept.values()) // IMAGES,
    }


if __name__ == "__main__":
    for is_bottleneck, counts in NETWORKS.values():
        with torch.device("meta"):
            made = network(counts, is_bottleneck=is_bottleneck)
        print(json.dumps(counts_of(made)))
