"""How a model is trained, by the words that all templates share: what `settings` of a job say.

The same file lies beside each script that reads it, and needs nothing else of dttui.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

ALSO_CALLED = {
    "learning_rate": ("lr", "max_lr"),
    "warmup_steps": ("warm_up_steps", "warmup_iters"),
    "scheduler": ("lr_scheduler", "lr_schedule", "lr_decay_style"),
    "min_lr": ("min_learning_rate",),
    "accumulation_steps": ("gradient_accumulation", "gradient_accumulation_steps", "accumulate"),
    "gradient_clipping": ("max_grad_norm", "clip_grad", "clip_grad_norm"),
    "loss_scaling": ("loss_scale",),
    "auto_augment": ("augment",),
}
"""Other words for settings, by the one that is used here."""
USUAL: dict[str, Any] = {
    "learning_rate": 1e-3,
    "warmup_steps": 0,
    "scheduler": "constant",
    "min_lr": 0.0,
    "weight_decay": 0.0,
    "dropout": 0.0,
    "label_smoothing": 0.0,
    "mixup": 0.0,
    "cutmix": 0.0,
    "auto_augment": False,
    "accumulation_steps": 1,
    "gradient_clipping": None,
    "loss_scaling": None,
    "mixed_precision": None,
}
"""What each is where neither the job nor the script says it."""
FROM_0 = {"learning_rate", "warmup_steps", "min_lr", "weight_decay", "gradient_clipping"}
FROM_0 |= {"dropout", "label_smoothing", "mixup", "cutmix"}
"""Settings that are numbers, and not below 0."""
SCHEDULES = {"constant": "constant", "none": "constant", "linear": "linear"}
SCHEDULES |= dict.fromkeys(("cosine", "cosine_annealing", "cosine_decay"), "cosine")
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Recipe:
    """What a job says of training, as numbers and as the parts of a loop."""

    def __init__(self, settings: Mapping[str, Any], **usual: Any) -> None:
        """Read the settings of a job; `usual` is what the script does by itself."""
        words = {other: name for name, others in ALSO_CALLED.items() for other in others}
        self.said = {words.get(name, name): value for name, value in settings.items() if value is not None}
        self.values: dict[str, Any] = USUAL | usual | {name: self.said[name] for name in USUAL if name in self.said}
        for name, value in self.values.items():
            least = 0 if name in FROM_0 else 1 if name == "accumulation_steps" else None
            if least is None or value is None:
                continue
            if value is True or not isinstance(value, (int, float)) or value < least:
                raise SystemExit(f"settings.{name}: {value!r} is no number from {least} on")
        if str(self["scheduler"]).lower() not in SCHEDULES:
            raise SystemExit(f"settings.scheduler: {self['scheduler']} is none of {', '.join(SCHEDULES)}")
        if self["label_smoothing"] >= 1 or self["dropout"] >= 1 or not isinstance(self["accumulation_steps"], int):
            raise SystemExit("settings: label_smoothing and dropout are below 1, accumulation_steps is a whole number")
        if not self["learning_rate"]:
            raise SystemExit("settings.learning_rate: with 0 nothing is learned")

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def tell_unread(self, own: Iterable[str], left_out: Iterable[str] = ()) -> None:
        """Have rank 0 say which settings nothing comes of: those that neither this file nor the script itself reads."""
        unread = sorted({*self.said} - {*USUAL, *own} | {*self.said}.intersection(left_out))
        if unread and (os.environ.get("RANK") or os.environ.get("HOROVOD_RANK") or "0") == "0":
            print(f"nothing comes of settings: {', '.join(unread)}", file=sys.stderr, flush=True)

    def factor(self, step: int, steps: int) -> float:
        """Return by how much the learning rate is multiplied in a step, the first being 0, of so many."""
        rising, least = self["warmup_steps"], self["min_lr"] / self["learning_rate"]
        if step < rising:
            return float((step + 1) / rising)
        kind = SCHEDULES[str(self["scheduler"]).lower()]
        if kind == "constant":
            return 1.0
        share = min(1.0, (step - rising) / max(1, steps - rising))
        high = 1 - share if kind == "linear" else (1 + math.cos(math.pi * share)) / 2
        return float(least + (1 - least) * high)

    def schedule(self, optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
        """Return what sets the learning rate of each step."""
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.factor(step, steps))

    def computed_in(self, precision: str | None) -> torch.dtype | None:
        """Return in what layers compute under autocast; `None` for 32 bits."""
        if precision is None and self["mixed_precision"]:
            precision = "bf16" if not torch.cuda.is_available() or torch.cuda.is_bf16_supported() else "fp16"
        return HALVES.get(precision or "")

    def scaler(self, device: str, computed_in: torch.dtype | None) -> torch.amp.GradScaler:
        """Return what scales the loss: in fp16, or as the job says."""
        is_on = computed_in is torch.float16 if self["loss_scaling"] is None else bool(self["loss_scaling"])
        return torch.amp.GradScaler(device, enabled=is_on)

    def parts(self, fewest: int, *data: Tensor) -> list[tuple[Tensor, ...]]:
        """Return a rank's samples of a step in as many parts as gradients are accumulated over, none of them empty.

        Of `fewest` samples, those of the rank that has least, so that all ranks have as many parts.
        """
        count = min(self["accumulation_steps"], fewest)
        return list(zip(*(item.tensor_split(count) for item in data), strict=True))

    def clip(self, parameters: Iterable[nn.Parameter]) -> None:
        """Keep the norm of all gradients, which are no longer scaled, below what the job says."""
        if self["gradient_clipping"]:
            torch.nn.utils.clip_grad_norm_(parameters, self["gradient_clipping"])

    def decay(self) -> dict[str, Any]:
        """Return the weight decay as optimizers take it."""
        return {"weight_decay": self["weight_decay"]}

    def mixed(self, images: Tensor, labels: Tensor, classes: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images with what the job asks of augmentation, and for each the share of every class, smoothed."""
        shares = nn.functional.one_hot(labels, classes).float()
        if self["auto_augment"] and len(images):
            flips = torch.rand(len(images), generator=dice) < 0.5
            images = torch.where(flips.view(-1, 1, 1, 1), images.flip(-1), images)
            images = images * (0.8 + 0.4 * torch.rand(len(images), 1, 1, 1, generator=dice))
        if (self["mixup"] or self["cutmix"]) and len(images) > 1:
            # Of the two each step takes one, by how strong each is to be.
            cuts = float(torch.rand((), generator=dice)) * (self["mixup"] + self["cutmix"]) < self["cutmix"]
            order = torch.randperm(len(images), generator=dice)
            kept = _beta(self["cutmix"] if cuts else self["mixup"], dice)
            if cuts:
                side = round(images.shape[-1] * math.sqrt(1 - kept))
                top, left = (int(torch.randint(images.shape[-1] - side + 1, (), generator=dice)) for _ in range(2))
                images = images.clone()
                box = (..., slice(top, top + side), slice(left, left + side))
                images[box] = images[order][box]
                kept = 1 - side**2 / images.shape[-1] ** 2
            else:
                images = kept * images + (1 - kept) * images[order]
            shares = kept * shares + (1 - kept) * shares[order]
        smoothing = self["label_smoothing"]
        return images, shares * (1 - smoothing) + smoothing / classes


def _beta(strength: float, dice: torch.Generator) -> float:
    """Draw from Beta(strength, strength), as mixup and cutmix do, by Jöhnk's way (1964)."""
    while True:
        first, second = (float(torch.rand((), generator=dice)) ** (1 / strength) for _ in range(2))
        if 0 < first + second <= 1:
            return float(first / (first + second))
