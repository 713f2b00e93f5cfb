"""Short names of GPUs: `NVIDIA A100-SXM4-80GB`, as the driver has it, and `A100`, as declared, are one type."""

from __future__ import annotations

import re

_BRANDS = {"nvidia", "amd", "instinct", "geforce", "tesla", "quadro", "graphics", "device"}
_FORM_FACTOR = re.compile(r"\d+GB|PCIe|SXM\d*|HBM\d\w*|NVL\d*|MIG|\d+g\.\d+gb|Laptop|GPU|Generation", re.IGNORECASE)


def gpu_type(name: str) -> str:
    """Return the model a GPU's name stands for: `Tesla V100-SXM2-16GB` → `V100`, `NVIDIA RTX A6000` → `RTX A6000`.

    A first word without a digit, `RTX` or `Ascend`, names a series: the model is what follows it.
    """
    words = [word for word in name.replace("-", " ").split() if word.lower() not in _BRANDS]
    if not words:
        return name.strip()
    model = [words[0]]
    if not any(letter.isdigit() for letter in words[0]):
        for word in words[1:]:
            if _FORM_FACTOR.fullmatch(word):
                break
            model.append(word)
    return " ".join(model)
