"""What words of a script expand to: parameters, arrays, arithmetic, substitutions and quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dttui.spec.dialects.shell.arithmetic import NotKnown, evaluate
from dttui.spec.dialects.shell.command_words import BLANKS, Fields, braced
from dttui.spec.dialects.shell.globbing import escaped, replaced, without_prefix, without_suffix
from dttui.spec.dialects.shell.open_parts import Openness, OpenParts
from dttui.spec.dialects.shell.programs import counts_devices
from dttui.spec.dialects.shell.shell_state import Array, ShellNumbers, ShellState, next_index
from dttui.spec.dialects.shell.source import Source, begin
from dttui.spec.secret_names import is_secret

if TYPE_CHECKING:
    from tree_sitter import Node

LONGEST = 200_000
"""Characters of a value; one that grows beyond is cut."""
_HOST = frozenset(
    {"CPATH", "HOME", "LD_LIBRARY_PATH", "LIBRARY_PATH", "LOGNAME", "MANPATH", "PATH", "PYTHONPATH", "SHELL", "USER"}
)
"""Variables that every host has of its own."""
_RUNTIME = re.compile(
    r"(SLURM|SKYPILOT|DSTACK|OMPI|PMI|PMIX|MPI|PBS|LSB|KUBERNETES|TORCHELASTIC|CONDA|MLP|ARNOLD)_\w+"
    r"|(LOCAL_|NODE_|GROUP_|ROLE_)?RANK|LOCAL_WORLD_SIZE|RANDOM|HOSTNAME|UID|EUID|PPID|SECONDS|TMPDIR|VIRTUAL_ENV|OSTYPE"
)
"""Names of variables that a scheduler, a launcher or the shell itself gives."""
_IF_ANY = re.compile(r"\$\{(?:(?P<array>\w+)\[[@*]\]:?\+\"?\$\{(?P=array)\[[@*]\]\}\"?|[@*1]:?\+\"?\$\{?[@*]\}?\"?)\}")
"""The items of an array, or the arguments, where there are any: what `set -u` asks scripts to write."""
_QUOTED = frozenset({"string", "raw_string", "ansi_c_string", "translated_string"})
_ANSI = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "r": "\r"}
_SUBSTITUTIONS = ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion")


class Expander:
    """Expands words in a state.

    Args:
        source: of the script.
        state: variables and arguments.
        holes: of the script.
        given: what a variable is that the script does not set, by its name; `None` for none.
        capture: what a command substitution prints; `None` where that is not known.
        demand: told the name of a variable without which the script ends, as `${NAME:?}` has it.
    """

    def __init__(
        self,
        source: Source,
        state: ShellState,
        holes: OpenParts,
        given: Callable[[str], str | None],
        capture: Callable[[Node], str | None],
        demand: Callable[[str], None],
    ) -> None:
        self._source = source
        self._state = state
        self._holes = holes
        self._given = given
        self._capture = capture
        self._demand = demand
        self._handlers: dict[str, Callable[[Node], str]] = {
            "string": self._string,
            "translated_string": self._string,
            "string_content": lambda part: self._unescaped(self._text(part)),
            "raw_string": self._raw,
            "ansi_c_string": self._ansi,
            "arithmetic_expansion": lambda part: self.arithmetic(self.inner(part)),
            "command_substitution": self._substitution,
            "simple_expansion": self._simple,
            "expansion": self._expansion,
        }

    def fields(self, node: Node) -> list[str]:
        """Return the fields that a word becomes."""
        fields = Fields(self._separators())
        if self._has_braces(node):
            fields.add_each(braced(self._joined(node)))
        else:
            self._add(node, fields)
        return self._at_home(node, fields.finish())

    def text(self, node: Node) -> str:
        """Return a word as one text, as an assignment takes it."""
        return self._at_home(node, [self._joined(node)[:LONGEST]])[0]

    def pattern(self, node: Node) -> str:
        """Return a word as a pattern: what is quoted in it stands for itself."""
        if node.type in _QUOTED:
            return escaped(self._joined(node))
        if node.type in ("concatenation", "regex", "extglob_pattern") and node.named_child_count:
            return "".join(self._pieces(self.pattern, node.children, node.start_byte, node.end_byte))
        if node.type in ("word", "regex", "extglob_pattern", "number"):
            return self._text(node)
        return self._joined(node)

    def array(self, node: Node, begin_at: int = 0) -> Array:
        """Return what `(a b)` and `([x]=1)` come to, the first item without an index at that one."""
        items: Array = {}
        at = begin_at
        for child in node.named_children:
            if child.type == "comment":
                continue
            if child.type == "variable_assignment":
                name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
                index = name.child_by_field_name("index") if name is not None else None
                if index is not None and value is not None:
                    key = self.text(index)
                    items[key] = self.text(value)
                    at = next_index([key]) or at
                continue
            keyed = (
                re.fullmatch(r"\[([^]=]+)\]=(.*)", self.text(child), re.DOTALL)
                if child.type == "concatenation"
                else None
            )
            if keyed is not None:
                items[keyed[1]] = keyed[2]
                at = next_index([keyed[1]]) or at
                continue
            for field in self.fields(child):
                items[str(at)] = field
                at += 1
        return items

    def arithmetic(self, text: str) -> str:
        """Return the value of an expression; a hole with it where that is not known."""
        if (expression := self._holes.given(text)) is not None:
            try:
                return str(evaluate(expression, ShellNumbers(self._state, self._number)))
            except NotKnown:
                pass
        parts = self._holes.of(text)
        openness = Openness.NEEDED if any(hole.openness is Openness.NEEDED for hole in parts) else Openness.RUNTIME
        return self._holes.make(f"$(({text.strip()}))", openness)

    def inner(self, node: Node) -> str:
        """Return the text between the first and the last part of a node, expanded: of `((…))`."""
        first, last = node.children[0], node.children[-1]
        return "".join(self._pieces(self._operand, node.children[1:-1], first.end_byte, last.start_byte))

    def parameter(self, name: str, index: str | None = None) -> str | None:
        """Return a parameter's value; `None` where nothing sets it."""
        state = self._state
        if name.isdecimal():
            number = int(name)
            if number == 0:
                return state.script
            if number <= len(state.positional):
                return state.positional[number - 1]
            return "" if state.is_inside else None
        special = {"#": str(len(state.positional)), "?": "0", "$": None, "!": None}
        if name in ("*", "@"):
            return (" " if name == "@" else self._separators()[:1]).join(state.positional)
        if name in special:
            return special[name] or self._holes.make(f"${name}", Openness.RUNTIME)
        if name == "IFS":
            return self._separators()
        if name in ("PWD", "OLDPWD"):
            return state.directory
        if name == "BASH_SOURCE":
            return state.script
        value = state.value(name, index)
        if value and is_secret(name):
            return None  # It goes nowhere but into the environment of who has it.
        return value if value is not None or name in state.variables else self._given(name)

    def _separators(self) -> str:
        separators = self._state.value("IFS")
        return BLANKS if separators is None else separators

    def _at_home(self, node: Node, texts: list[str]) -> list[str]:
        """Return texts of a word, the first with what stands for the `~` that it begins with."""
        if texts and node.type in ("word", "concatenation") and re.match(r"~(/|$)", self._text(node)):
            return [self._holes.make("~", Openness.HOST) + texts[0][1:], *texts[1:]]
        return texts

    def _add(self, node: Node, fields: Fields) -> None:
        """Add a word, or a part of one, to fields."""
        if node.type == "concatenation":
            for child in node.children:
                self._add(child, fields)
        elif node.type in _SUBSTITUTIONS:
            items = self._items(node)
            if items is not None:
                for index, item in enumerate(items):
                    fields.add_split((" " if index else "") + item)
            elif self._is_quoted_default(node):
                fields.add(self._joined(node))
            else:
                fields.add_split(self._joined(node))
        elif node.type == "string" and (every := self._every_item(node)) is not None:
            fields.add_each(every)
        else:
            fields.add(self._joined(node))

    def _is_quoted_default(self, node: Node) -> bool:
        """Whether an expansion comes to a word in quotes that stands for it, as `${X:-"a b"}` may."""
        last = node.children[-2] if node.type == "expansion" and node.child_count > 3 else node
        return last.type in _QUOTED and self._joined(node) == self._joined(last)

    def _has_braces(self, node: Node) -> bool:
        """Whether a word has `{a,b}` in it, beside nothing that has to be split."""
        if node.type == "concatenation":
            kinds = {child.type for child in node.children}
            has_any = "brace_expression" in kinds or any(self._text(child) == "{" for child in node.children)
            return has_any and not kinds & set(_SUBSTITUTIONS)
        return node.type in ("word", "brace_expression") and "{" in self._text(node)

    def _every_item(self, string: Node) -> list[str] | None:
        """Return the items of `"$@"` and `"${A[@]}"`, which stay fields of their own; `None` for other strings."""
        inside = string.named_children
        if (
            len(inside) != 1
            or len(self._text(inside[0])) != len(self._text(string)) - 2
            or "*" in self._text(inside[0])
        ):
            return None
        return self._items(inside[0])

    def _items(self, node: Node) -> list[str] | None:
        """Return the items that `$@`, `${A[@]}` or a slice of them has; `None` for what has none."""
        if node.type not in ("simple_expansion", "expansion"):
            return None
        if (idiom := _IF_ANY.fullmatch(self._text(node))) is not None:
            items = self._state.items(idiom["array"]) if idiom["array"] else list(self._state.positional)
            return items or []
        if (indices := re.fullmatch(r"\$\{!(\w+)\[[@*]\]\}", self._text(node))) is not None:
            return self._state.indices(indices[1])
        match = re.fullmatch(
            r"\$(?:([@*])|\{([@*]|[A-Za-z_]\w*\[[@*]\])(?::([^:}]+)(?::([^:}]+))?)?\})", self._text(node)
        )
        if match is None:
            return None
        name = match[1] or match[2]
        if name in ("@", "*"):
            items = list(self._state.positional)
            if not items and not self._state.is_inside:
                return [self._holes.make(f"${name}", Openness.NEEDED)]
        else:
            found = self._state.items(name.partition("[")[0])
            items = found if found is not None else [self._open_variable(name.partition("[")[0])]
        if match[3] is None:
            return items
        start, length = self._index(match[3]), self._index(match[4])
        start = max((start or 0) - 1, 0) if name in ("@", "*") else (start or 0)
        return items[start:] if length is None else items[start:][: length if length >= 0 else None]

    def _index(self, text: str | None) -> int | None:
        if text is None:
            return None
        known = self._holes.given(self._plain(text))
        try:
            return evaluate(known, ShellNumbers(self._state, self._number)) if known is not None else None
        except NotKnown:
            return None

    def _plain(self, text: str) -> str:
        """Return a short text with its plain `$name` and `$((…))` filled in, as an index has them."""
        text = re.sub(r"\$\(\((.*)\)\)", r"\1", text)
        return re.sub(r"\$\{?(\w+)\}?", lambda match: self.parameter(match[1]) or "", text)

    def _joined(self, node: Node) -> str:
        """Return a word, or a part of one, as one text."""
        handler = self._handlers.get(node.type)
        if handler is not None:
            return handler(node)
        if node.type == "word":
            return re.sub(r"\\(.)", r"\1", self._text(node).replace("\\\n", ""), flags=re.DOTALL)
        if node.type in ("heredoc_body", "heredoc_content"):
            return "".join(
                self._pieces(self._joined, node.children, node.start_byte, node.end_byte, self._unescaped_lines)
            )
        if node.type in ("concatenation", "extglob_pattern", "regex", "array") and node.child_count:
            return "".join(self._pieces(self._joined, node.children, node.start_byte, node.end_byte))
        if node.type == "process_substitution":
            return self._holes.make(self._text(node), Openness.RUNTIME)
        return self._text(node)

    def _string(self, node: Node) -> str:
        """Return what is between double quotes; `$"…"` too."""
        inner = node if node.type == "string" else node.named_children[0]
        start, end = inner.start_byte + 1, inner.end_byte - 1
        return "".join(self._pieces(self._joined, inner.children[1:-1], start, end, self._unescaped))

    @staticmethod
    def _unescaped_lines(text: str) -> str:
        return re.sub(r"\\([$`\\])", r"\1", text.replace("\\\n", ""))

    @staticmethod
    def _unescaped(text: str) -> str:
        return re.sub(r"\\([\"$`\\])", r"\1", text.replace("\\\n", ""))

    def _raw(self, node: Node) -> str:
        return self._source.written(node.start_byte + 1, node.end_byte - 1)

    def _ansi(self, node: Node) -> str:
        return re.sub(r"\\(.)", lambda match: _ANSI.get(match[1], match[0]), self._text(node)[2:-1])

    def _operand(self, node: Node) -> str:
        """Return a part of an expression with its `$…` filled in."""
        if node.type in _SUBSTITUTIONS or node.type == "string":
            text = self._joined(node)
            return f"({text})" if text.startswith("-") else text
        if node.child_count:
            return "".join(self._pieces(self._operand, node.children, node.start_byte, node.end_byte))
        return self._text(node)

    def _substitution(self, node: Node) -> str:
        text = self._text(node)
        if text.startswith("$((") and text.endswith("))"):  # The parser takes it for commands within a heredoc.
            return self.arithmetic(self._plain(text[3:-2]))
        printed = self._capture(node)
        if printed is not None:
            return printed.rstrip("\n")[:LONGEST]
        return self._holes.make(text, Openness.GPUS if counts_devices(text) else Openness.RUNTIME)

    def _simple(self, node: Node) -> str:
        name = self._text(node)[1:]
        value = self.parameter(name)
        return value if value is not None else self._open_variable(name)

    def _expansion(self, node: Node) -> str:
        """Return what `${…}` is."""
        parts = node.children[1:-1]
        if not parts:
            return ""
        prefix = self._text(parts[0]) if parts[0].type in ("#", "!") and len(parts) > 1 else ""
        if prefix:
            parts = parts[1:]
        name, index = self._name(parts[0])
        if prefix == "!":
            name, index = self.parameter(name) or "", None
        if prefix == "#":
            return self._length(name, index)
        if (items := self._items(node)) is not None:
            return (self._separators()[:1] if "*" in self._text(parts[0]) else " ").join(items)
        value = self.parameter(name, index)
        if len(parts) == 1:
            return value if value is not None else self._open_item(name, index, node)
        return self._operated(name, value, self._text(parts[1]), parts[2:], node)

    def _length(self, name: str, index: str | None) -> str:
        if index in ("@", "*"):
            items = self._state.items(name)
            if items is None or not any(map(self._holes.of, items)):
                return str(len(items or ()))
            text = self._holes.shown(items[0])
            is_devices = "VISIBLE_DEVICES" in text
            return self._holes.make(f"${{#{name}[@]}}", Openness.GPUS if is_devices else Openness.RUNTIME)
        if name in ("@", "*"):
            return str(len(self._state.positional))
        known = self._holes.given(self.parameter(name, index) or "")
        return str(len(known)) if known is not None else self._holes.make(f"${{#{name}}}", Openness.RUNTIME)

    def _name(self, node: Node) -> tuple[str, str | None]:
        if node.type != "subscript":
            return self._text(node), None
        name, index = node.child_by_field_name("name"), node.child_by_field_name("index")
        if name is None or index is None:
            return self._text(node), None
        text = self.text(index)
        if text not in ("@", "*") and re.fullmatch(r"[-+*/%()$\w ]+", text) and not text.isdecimal():
            value = self._state.variables.get(self._text(name))
            if not isinstance(value, dict) or text not in value:
                number = self._index(text)
                text = str(number) if number is not None else text
        return self._text(name), text

    def _operated(self, name: str, value: str | None, sign: str, operands: Sequence[Node], node: Node) -> str:
        """Return `${name:-word}` and its like."""
        if sign in (":-", "-", ":=", "=", ":?", "?", ":+", "+"):
            return self._defaulted(name, value, sign, operands, node)
        if value is None:
            return self._open_variable(name)
        if sign in ("#", "##", "%", "%%"):
            pattern = "".join(self.pattern(operand) for operand in operands)
            cut = without_prefix if sign[0] == "#" else without_suffix
            return cut(value, pattern, longest=len(sign) == 2)
        if sign[0] == "/":
            pattern, replacement = self._halves(self._text(node), sign)
            return replaced(value, pattern, replacement, everywhere=sign == "//")
        if sign == ":":
            numbers = [self._index(self._text(operand)) for operand in operands if self._text(operand) != ":"]
            start = numbers[0] if numbers and numbers[0] is not None else 0
            length = numbers[1] if len(numbers) > 1 else None
            return value[start:][:length] if -start <= len(value) else ""
        if sign in ("^^", "^", ",,", ","):
            changed = value.upper() if sign[0] == "^" else value.lower()
            return changed if len(sign) == 2 else changed[:1] + value[1:]
        return value

    def _defaulted(self, name: str, value: str | None, sign: str, operands: Sequence[Node], node: Node) -> str:
        known = self._holes.given(value) if value is not None else None
        is_set = value is not None and (not sign.startswith(":") or known != "")
        if sign.endswith("+"):
            return "".join(self._operands(node, operands)) if is_set else ""
        if is_set and value is not None:
            return value
        if sign.endswith("?"):
            self._demand(name)
            return self._open_variable(name)
        text = "".join(self._operands(node, operands))
        if sign.endswith("="):
            self._state.set(name, text)
        return text

    def _operands(self, node: Node, operands: Sequence[Node]) -> Iterator[str]:
        return self._pieces(self._joined, operands, operands[0].start_byte, node.end_byte - 1) if operands else iter(())

    def _halves(self, text: str, sign: str) -> tuple[str, str]:
        """Return pattern and replacement of `${name/pattern/replacement}`; where they part the parser does not tell."""
        body = text.partition(sign)[2][:-1]
        match = re.match(r"((?:\\.|[^\\/])*)/?(.*)", body, re.DOTALL)
        pattern, replacement = (match[1], match[2]) if match is not None else (body, "")
        return self._unquoted(pattern).replace("\\/", "/"), self._unquoted(replacement).replace("\\/", "/")

    def _unquoted(self, text: str) -> str:
        return self._plain(re.sub(r"['\"]", "", text))

    def _open_variable(self, name: str) -> str:
        """Return what stands for a variable that nothing sets."""
        openness = Openness.NEEDED
        if name in _HOST:
            openness = Openness.HOST
        elif _RUNTIME.fullmatch(name):
            openness = Openness.RUNTIME
        return self._holes.make(f"${{{name}}}" if len(name) > 1 and name.isdecimal() else f"${name}", openness)

    def _open_item(self, name: str, index: str | None, node: Node) -> str:
        """Return what stands for an item that is not there, as its index may not be known either."""
        if index is None or self._state.items(name) is None or re.fullmatch("-?[0-9]+|[@*]", index):
            return self._open_variable(name)
        unknown = self._holes.of(index) or self._holes.of(self._open_variable(index))
        return self._holes.make(self._text(node), unknown[0].openness)

    def _number(self, name: str) -> str:
        value = self.parameter(name)
        known = self._holes.given(value) if value is not None else None
        if known is None:
            raise NotKnown
        return known

    def _pieces(
        self,
        expand: Callable[[Node], str],
        parts: Sequence[Node],
        start: int,
        end: int,
        between: Callable[[str], str] = str,
    ) -> Iterator[str]:
        """Yield parts of a node expanded, with what stands around and between them, which the tree leaves out."""
        for part in parts:
            yield between(self._source.text(start, begin(part)))
            yield expand(part)
            start = part.end_byte
        yield between(self._source.text(start, end))

    def _text(self, node: Node) -> str:
        return self._source.text(begin(node), node.end_byte)
