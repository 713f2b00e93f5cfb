"""Commands as a person would write them: without the scripts by which dttui watches what it starts. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dttui.frameworks.bundle import Hole
from dttui.frameworks.parts.torchrun import RANK, SEALED, TORCHRUN

_SEALED = f"--rdzv-backend={SEALED}"


def plain_command(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command with torch's own torchrun for dttui's, and the program itself for what runs it as a rank.

    An elastic job keeps dttui's: in torch's, whoever reaches the rendezvous runs code of his.

    A module comes by `-m` after an interpreter, and by `--module` after a launcher, which torchrun, accelerate and
    DeepSpeed all call so.
    """
    words: list[str] = []
    for index, item in enumerate(argv):
        if item == TORCHRUN and _SEALED not in argv:
            words += ["-m", "torch.distributed.run"]
        elif item == RANK:
            is_launcher = bool(words) and words[-1] != str(Hole.PYTHON)
            program = list(argv[index + 1 :])
            if words and words[-1] == "--":
                words.pop()
            if is_launcher and program[:1] == ["-m"]:
                program[0] = "--module"
            return (*words, *program)
        else:
            words.append(item)
    return tuple(words)
