"""What there is to look at for errors that torch tells in words of its own."""

from __future__ import annotations

import pytest

from dttui.diagnosis.own_errors import advice_for


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x5 and 4x4)", "print the shapes"),
        (
            "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton",
            "print the shapes",
        ),
        ("RuntimeError: shape '[4, 8]' is invalid for input of size 30", "print the shapes"),
        ("RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0", "print the shapes"),
        ("RuntimeError: size mismatch, m1: [2 x 5], m2: [4 x 4] at /pytorch/aten", "print the shapes"),
        ("RuntimeError: mat1 and mat2 must have the same dtype, but got Long and Float", "convert one"),
        ("RuntimeError: Input type (float) and bias type (c10::Half) should be the same", "convert one"),
        ("IndexError: index out of range in self", "vocab_size"),
        ("IndexError: Target 7 is out of bounds.", "number of classes"),
        ("RuntimeError: Expected all tensors to be on the same device, but found at least two", "cuda:LOCAL_RANK"),
        (
            "RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
            "cuda:LOCAL_RANK",
        ),
        (
            "RuntimeError: Input type (torch.FloatTensor) and bias type (torch.cuda.FloatTensor) should be the same or",
            "cuda:LOCAL_RANK",
        ),
        (
            "RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should be the",
            "convert one",
        ),
        ("RuntimeError: Trying to backward through the graph a second time (or …)", "detach"),
        ("RuntimeError: one of the variables needed has been modified by an inplace operation: [", "x = x + 1"),
        ("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn", "frozen"),
        ("RecursionError: maximum recursion depth exceeded", "without an end"),
    ],
)
def test_errors_of_torch_come_with_what_to_look_at(text: str, words: str) -> None:
    (advice,) = advice_for(text)
    assert words in advice


@pytest.mark.parametrize(
    "text",
    ["KeyError: 'size'", "ValueError: bad shape", "AssertionError", "AssertionError: world size mismatch: 8, got 4"],
)
def test_of_others_nothing_is_guessed(text: str) -> None:
    assert advice_for(text) == ()
