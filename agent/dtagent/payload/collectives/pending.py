"""A tensor that is filled in later: a result for which other ranks have still to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    Why = Callable[[], Exception]


class PendingTensor(torch.Tensor):
    """A tensor whose values are not there yet. It is one for `isinstance`; whoever reads it before raises.

    Once it is filled it reads like any other, and what is made of it are plain tensors.
    """

    known: torch.Tensor | None
    """What it is, as a plain tensor of the same memory; `None` before it is known."""
    why: Why
    """What a reader gets to see as long as there are no values."""
    has_failed: bool
    """Whether there never will be any."""
    followers: list[Callable[[torch.Tensor], None]]
    """What is done once it is filled."""
    wanted: tuple[tuple[int, ...], torch.dtype]
    """Shape and type of a message that is waited for."""

    @staticmethod
    def __new__(cls, why: Why, like: torch.Tensor) -> PendingTensor:
        """Return one without values, for now of another's shape and type: it may be a parameter's gradient already."""
        made = torch.empty_like(like, requires_grad=False).as_subclass(cls)
        made.known, made.why, made.has_failed, made.followers = None, why, False, []
        return made

    def derived(self, make: Callable[[torch.Tensor], torch.Tensor], like: torch.Tensor) -> PendingTensor:
        """Return what is made of its values once they are there; for now of another's shape and type."""
        made = PendingTensor(lambda: self.why(), like)
        if self.known is not None:
            made.fill(make(self.known))
        else:
            self.followers.append(lambda values: made.fill(make(values)))
        return made

    def fill(self, values: torch.Tensor) -> None:
        """Let it be these values from now on; they are not copied."""
        # As any call of a tensor's, but not on the values: it is the tensor itself that changes.
        replace = torch.Tensor.data.__set__  # type: ignore[attr-defined]  # a descriptor, which torch's stubs do not say
        torch.Tensor.__torch_function__(replace, (), (self, values), {})  # type: ignore[no-untyped-call]
        self.known = values
        for follow in self.followers:
            follow(values)

    def fail(self, why: Why) -> None:
        """Let whoever reads it see another error, for good."""
        self.why, self.has_failed = why, True

    def read(self) -> torch.Tensor:
        """Return the values as a plain tensor. Raises where there are none."""
        if self.known is None:
            raise self.why()
        return self.known

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Use the values instead, in whatever is called; raise where there are none."""
        return func(*_plain(args), **_plain(kwargs or {}))


def _plain(value: Any) -> Any:
    if isinstance(value, PendingTensor):
        return value.read()
    if isinstance(value, (tuple, list)):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
