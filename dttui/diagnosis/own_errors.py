"""What to look at for errors of a script's own that torch tells in words of its own. Knows no cause."""

from __future__ import annotations

import re

from dttui.i18n import N_

_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"shapes cannot be multiplied|must match the size of tensor|Sizes of tensors must match"
        r"|is invalid for input of size|stack expects each tensor to be equal size|Expected input batch_size"
        r"|RuntimeError: size mismatch,|not broadcastable"
        r"|normalized_shape|expected input\[.*\] to have \d+ channels|must match except in dimension",
        N_(
            "Two sizes do not go together: print the shapes of what goes into that line, and compare those of the "
            "model with the data's; the last batch is smaller without drop_last=True."
        ),
    ),
    (
        r"Expected all tensors to be on the same device|but is on cpu|not on the expected device"
        r"|Input type \(torch\.cuda\.\w+\) and (?:weight|bias) type \(torch\.(?!cuda\.)"
        r"|Input type \(torch\.(?!cuda\.)\w+\) and (?:weight|bias) type \(torch\.cuda\.",
        N_("Something stayed on another device: move the model and every batch to the rank's own, cuda:LOCAL_RANK."),
    ),
    (
        r"same dtype|expected scalar type|Input type \([^)\n]*\) and (?:weight|bias) type|Found dtype \w+ but expected",
        N_("Numbers of two kinds meet: convert one, as by x.to(weight.dtype), or leave it to torch.autocast."),
    ),
    (
        r"index out of range in self|Target -?\d+ is out of bounds|is out of bounds for dimension",
        N_(
            "An index lies beyond the last: compare the tokenizer's vocabulary with the model's vocab_size, and labels "
            "with the number of classes."
        ),
    ),
    (
        r"backward through the graph a second time",
        N_("A loss went backward twice: make it anew in each step, and detach what is kept from the step before."),
    ),
    (
        r"modified by an inplace operation",
        N_("torch.autograd.set_detect_anomaly(True) names the operation; write x = x + 1 for x += 1 there."),
    ),
    (
        r"does not require grad and does not have a grad_fn",
        N_("Nothing that is trained leads to the loss: look for detach(), item(), no_grad() and frozen parameters."),
    ),
    (
        r"maximum recursion depth exceeded",
        N_("A function calls itself without an end: the traceback shows which."),
    ),
)


def advice_for(text: str) -> tuple[str, ...]:
    """Return what there is to say of an exception's text, as ids of the catalogue; nothing for most."""
    return next(((advice,) for pattern, advice in _ADVICE if re.search(pattern, text)), ())
