"""Programs that scripts take text from, as far as their output is known without running them: `dirname`, `seq`, `tr`.

Each takes its arguments and what it reads, and returns what it prints; `None` where only the host knows.
"""

from __future__ import annotations

import getopt
import posixpath
import re
import shlex
from collections.abc import Callable, Sequence

from dttui.spec.dialects.shell.arithmetic import NotKnown, evaluate
from dttui.spec.dialects.shell.open_parts import normalised

_MOST_LINES = 1_000
_DEVICE_COUNTS = (
    re.compile(r"torch\.cuda\.device_count\(\)"),
    re.compile(r"nvidia-smi[^|]*\|[^|]*(wc|grep -c)|nvidia-smi --query-gpu=count"),
    re.compile(r"(rocm-smi|rocminfo|xpu-smi|npu-smi)[^|]*\|[^|]*(wc|grep -c)"),
    re.compile(r"CUDA_VISIBLE_DEVICES"),
    re.compile(r"/dev/nvidia\[0-9\]"),
)


def counts_devices(text: str) -> bool:
    """Whether a command substitution counts the GPUs of the host that it runs on."""
    return any(pattern.search(text) for pattern in _DEVICE_COUNTS)


def printed(name: str, arguments: Sequence[str], stdin: str | None) -> str | None:
    """Return what a program prints, without the last end of line; `None` where that is not known."""
    program = _PROGRAMS.get(posixpath.basename(name))
    return program(list(arguments), stdin) if program is not None else None


def echoed(arguments: Sequence[str]) -> str:
    """Return what `echo` prints."""
    words = list(arguments)
    while words and re.fullmatch("-[neE]+", words[0]):
        words.pop(0)
    return " ".join(words)


def _echo(arguments: list[str], _stdin: str | None) -> str:
    return echoed(arguments)


def _printf(arguments: list[str], _stdin: str | None) -> str | None:
    if not arguments:
        return None
    form, *values = arguments
    form = form.replace("\\n", "\n").replace("\\t", "\t")
    pieces = re.split(r"(%[sd]|%0?[0-9]*d|%%)", form)
    wanted = [piece for piece in pieces[1::2] if piece != "%%"]
    if "%" in "".join(pieces[::2]) or (values and not wanted):
        return None
    printed_text = ""
    queue = values or [""] * len(wanted)
    while True:
        for index, piece in enumerate(pieces):
            if index % 2 == 0:
                printed_text += piece
            elif piece == "%%":
                printed_text += "%"
            else:
                value = queue.pop(0) if queue else ""
                width = piece[1:-1]
                if len(width) > 3:
                    return None
                printed_text += value.rjust(int(width or 0), "0" if width.startswith("0") else " ")[:4_000]
        if not queue or not wanted:
            return printed_text.rstrip("\n")


def _dirname(arguments: list[str], _stdin: str | None) -> str | None:
    paths = [word for word in arguments if word != "--"]
    return (posixpath.dirname(paths[0].rstrip("/")) or ".") if len(paths) == 1 else None


def _basename(arguments: list[str], _stdin: str | None) -> str | None:
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        return None
    name = posixpath.basename(arguments[0].rstrip("/"))
    return name.removesuffix(arguments[1]) if len(arguments) == 2 else name


def _resolved(arguments: list[str], _stdin: str | None) -> str | None:
    paths = [word for word in arguments if not re.fullmatch("-[a-z]+|--[a-z-]+", word)]
    return normalised(paths[0]) if len(paths) == 1 else None


def _expr(arguments: list[str], _stdin: str | None) -> str | None:
    try:
        return str(evaluate(" ".join(arguments), {}))
    except NotKnown:
        return None


def _seq(arguments: list[str], _stdin: str | None) -> str | None:
    numbers = [int(word) for word in arguments if re.fullmatch("-?[0-9]{1,6}", word)]
    if len(numbers) != len(arguments) or not 1 <= len(numbers) <= 3:
        return None
    first, step, last = {1: (1, 1, numbers[0]), 2: (numbers[0], 1, numbers[-1])}.get(
        len(numbers), (numbers[0], numbers[len(numbers) // 2], numbers[-1])
    )
    if step == 0:
        return None
    return "\n".join(map(str, range(first, last + (1 if step > 0 else -1), step)[:_MOST_LINES]))


def _which(arguments: list[str], _stdin: str | None) -> str | None:
    return arguments[-1] if arguments else None


def _head(arguments: list[str], stdin: str | None) -> str | None:
    count = _count_of(arguments)
    return None if stdin is None or count is None else "\n".join(stdin.splitlines()[:count])


def _tail(arguments: list[str], stdin: str | None) -> str | None:
    count = _count_of(arguments)
    return None if stdin is None or count is None else "\n".join(stdin.splitlines()[-count:])


def _count_of(arguments: list[str]) -> int | None:
    if not arguments:
        return 10
    match = re.fullmatch(r"(?:-n ?|-)([0-9]{1,4})", " ".join(arguments))
    return int(match[1]) if match else None


def _tr(arguments: list[str], stdin: str | None) -> str | None:
    if stdin is None or not arguments:
        return None
    if any(re.search(r"\[:|.-.|\[", word) for word in arguments if not re.fullmatch("-[cds]", word)):
        return None
    sets = [word.replace("\\n", "\n").replace("\\t", "\t") for word in arguments if not re.fullmatch("-[cds]", word)]
    if arguments[0] == "-d" and len(sets) == 1 and sets[0]:
        return re.sub(f"[{re.escape(sets[0])}]", "", stdin)
    if len(sets) == 2 and arguments[0] not in ("-d", "-c") and len(sets[0]) == len(sets[1]) and "-" not in sets[0]:
        return stdin.translate(str.maketrans(sets[0], sets[1]))
    return None


def _wc(arguments: list[str], stdin: str | None) -> str | None:
    if stdin is None or arguments not in (["-l"], ["-w"]):
        return None
    return str(len(stdin.split()) if arguments == ["-w"] else len(stdin.splitlines()))


def _cut(arguments: list[str], stdin: str | None) -> str | None:
    match = re.fullmatch(r"-d ?(.) -f ?([0-9]{1,3})|-f ?([0-9]{1,3}) -d ?(.)", " ".join(arguments))
    if stdin is None or match is None:
        return None
    separator, number = match[1] or match[4], int(match[2] or match[3])
    fields = (line.split(separator) for line in stdin.splitlines())
    return "\n".join("".join(line[number - 1 : number]) if len(line) > 1 else line[0] for line in fields)


def _awk(arguments: list[str], stdin: str | None) -> str | None:
    """Return what the few forms print that count or choose fields."""
    match = re.fullmatch(r"(?:-F ?(\S+?) )?\{ ?print \$?(NF|[0-9]{1,3});? ?\}", " ".join(arguments))
    if stdin is None or match is None:
        return None
    lines = [line.split(match[1].strip("'\"")) if match[1] else line.split() for line in stdin.splitlines()]
    if match[2] == "NF" and "$NF" not in arguments[-1]:
        return "\n".join(str(len(fields)) for fields in lines)
    number = -1 if match[2] == "NF" else int(match[2]) - 1
    return "\n".join(fields[number] if -1 <= number < len(fields) else "" for fields in lines)


def _grep(arguments: list[str], stdin: str | None) -> str | None:
    """Return lines without comments, as `grep -v '^#'` leaves them."""
    if stdin is None or arguments not in (["-v", "^#"], ["-v", "#"], ["-v", "^\\s*#"]):
        return None
    return "\n".join(line for line in stdin.splitlines() if not line.lstrip().startswith("#"))


def _getopt(arguments: list[str], _stdin: str | None) -> str | None:
    """Return options and arguments in order and quoted, as util-linux' `getopt -o n: -l nproc: -- "$@"` does."""
    if "--" not in arguments:
        return None
    at = arguments.index("--")
    try:
        own, rest = getopt.getopt(arguments[:at], "+o:l:n:", ["options=", "longoptions=", "name="])
        short = "".join(value for option, value in own if option in ("-o", "--options"))
        long = [name for option, value in own if option in ("-l", "--longoptions") for name in value.split(",")]
        if rest or "::" in short + " ".join(long):  # With a value or without: getopt of Python has no such before 3.14.
            return None
        given, left = getopt.gnu_getopt(arguments[at + 1 :], short, [name.replace(":", "=") for name in long])
    except getopt.GetoptError:
        return None
    valued = {f"-{letter}" for letter in re.findall("(.):", short)} | {
        f"--{name[:-1]}" for name in long if name[-1:] == ":"
    }
    words = [part for option, value in given for part in (option, *[shlex.quote(value)] * (option in valued))]
    return " ".join(["", *words, "--", *map(shlex.quote, left)])


_PROGRAMS: dict[str, Callable[[list[str], str | None], str | None]] = {
    "echo": _echo,
    "printf": _printf,
    "dirname": _dirname,
    "basename": _basename,
    "realpath": _resolved,
    "readlink": _resolved,
    "expr": _expr,
    "seq": _seq,
    "which": _which,
    "head": _head,
    "tail": _tail,
    "tr": _tr,
    "wc": _wc,
    "cut": _cut,
    "awk": _awk,
    "cat": lambda arguments, stdin: stdin if not arguments else None,
    "grep": _grep,
    "getopt": _getopt,
    "xargs": lambda arguments, stdin: " ".join(stdin.split()) if stdin is not None and not arguments else None,
    "true": lambda _arguments, _stdin: "",
}
