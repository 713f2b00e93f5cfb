"""Follows one text of a script, statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dttui.spec.dialects.shell.branching import branches, case_items, ends, starts_something
from dttui.spec.dialects.shell.builtin_commands import Builtins
from dttui.spec.dialects.shell.command_words import ShellCommand, Word, make_word
from dttui.spec.dialects.shell.deciding import Conditions
from dttui.spec.dialects.shell.expansion import LONGEST, Expander
from dttui.spec.dialects.shell.flow import Exited, Left, SharedScript, TooLong
from dttui.spec.dialects.shell.globbing import matches
from dttui.spec.dialects.shell.open_parts import START
from dttui.spec.dialects.shell.programs import counts_devices, printed
from dttui.spec.dialects.shell.shell_state import Array, ShellState
from dttui.spec.dialects.shell.source import Source, begin
from dttui.spec.yaml_source import Mark

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_ROUNDS = 1_000
"""Of a loop that are followed."""
_DEEPEST = 40
_MOST_COMMANDS = 2_000


class Follower:
    """Follows one text: a script, or one that it evaluates."""

    def __init__(
        self,
        shell: SharedScript,
        source: Source,
        state: ShellState,
        mark: Mark | None,
        depth: int,
        output: list[str] | None = None,
    ) -> None:
        self.shell = shell
        self._source = source
        self.state = state
        self._mark = mark
        self._depth = depth
        self.output = output
        """What a command substitution has printed so far; `None` outside of one."""
        self.is_known = True
        """Whether all of that is known."""
        self.stdin: str | None = None
        """What the command that is followed reads, where that is known."""
        self.own: dict[str, str | Array] = {}
        """Variables that are set for the command that is followed alone."""
        self.said = ""
        """What was printed last."""
        self.at = Mark(1, 1)
        """Where the command stands that is followed."""
        self.expander = Expander(source, state, shell.holes, shell.given, self._captured, self._demand)
        self.conditions = Conditions(self.expander, shell.holes)
        self._builtins = Builtins(self)
        self._handlers: dict[str, Callable[[Node], bool | None]] = {
            "variable_assignment": self._assignment,
            "variable_assignments": lambda node: self.block(node.children),
            "declaration_command": self._declaration,
            "unset_command": self._unset,
            "list": self._list,
            "pipeline": self._pipeline,
            "negated_command": self._negated,
            "test_command": self.conditions.test,
            "compound_statement": self._compound,
            "subshell": self._subshell,
            "if_statement": self._if,
            "for_statement": self._for,
            "c_style_for_statement": self._counted_for,
            "while_statement": self._while,
            "case_statement": self._case,
            "function_definition": self._function,
            "ERROR": lambda node: self.block(node.children),
        }

    @property
    def is_captured(self) -> bool:
        """Whether what is printed is what counts, as in a command substitution."""
        return self.output is not None

    def block(self, nodes: Sequence[Node]) -> bool | None:
        """Follow statements one after another; return how the last one ends."""
        status: bool | None = True
        named = [node for node in nodes if node.is_named]
        for node in named:
            after = node.next_sibling
            is_background = after is not None and after.type == "&"
            status = self.statement(node, is_background)
        return status

    def statement(self, node: Node, is_background: bool = False) -> bool | None:
        """Follow one statement; return how it ends, `None` where that is not known."""
        self.shell.step()
        if node.type == "command":
            return self._command(node, is_background)
        if node.type == "redirected_statement":
            return self._redirected(node, is_background)
        handler = self._handlers.get(node.type)
        return handler(node) if handler is not None else True

    def start(self, text: str, mark: Mark | None, file: str = "") -> None:
        """Follow a text that a command here evaluates, or a file that it reads, in the same state."""
        self.shell.follow(text, self.state, mark, self._depth + 1, file)

    def _assignment(self, node: Node) -> bool:
        self._assign(node)
        return True

    def _assign(self, node: Node) -> str:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return ""
        self.state.marks[self._text(target)] = self._place(node)
        index: str | None = None
        name = self._text(target)
        if target.type == "subscript":
            inner, at = target.child_by_field_name("name"), target.child_by_field_name("index")
            name = self._text(inner) if inner is not None else name
            index = self.expander.text(at) if at is not None else None
        is_added = any(child.type == "+=" for child in node.children)
        new: str | Array = self.expander.text(value) if value is not None and value.type != "array" else ""
        if value is not None and value.type == "array":
            begin_at = self.state.next_index(name) if is_added else 0
            self.shell.step(begin_at // 100)  # All items are copied.
            new = self.expander.array(value, begin_at)
        if is_added:
            self.state.append(name, new, index)
        else:
            self.state.set(name, new, index)
        return name

    def _declaration(self, node: Node) -> bool:
        keyword = self._text(node.children[0])
        options = "".join(self._text(child) for child in node.named_children if child.type == "word")
        is_exported = keyword == "export" or (keyword in ("declare", "typeset") and "x" in options)
        is_local = keyword in ("local", "declare", "typeset") and bool(self.state.locals)
        for child in node.named_children:
            if is_local and child.type in ("variable_assignment", "variable_name"):
                self.state.keep_for_later(self._text(child).partition("=")[0].rstrip("+"))
            if child.type == "variable_assignment":
                name = self._assign(child)
            elif child.type == "variable_name":
                name = self._text(child)
                if keyword in ("declare", "local", "typeset") and name not in self.state.variables:
                    self.state.set(name, {} if "A" in options or "a" in options else "")
            elif child.type in ("concatenation", "string", "command_substitution", "simple_expansion"):
                self._set_pairs(child, is_exported=is_exported)
                continue
            else:
                continue
            if is_exported and "n" not in options:
                self.state.exported.add(name)
        return True

    def _set_pairs(self, node: Node, *, is_exported: bool) -> None:
        """Set what a word or a command substitution comes to, `NAME=VALUE` of each field."""
        for field in self.expander.fields(node):
            name, separator, value = field.partition("=")
            if separator and name.isidentifier():
                self.state.set(name, value)
                self.state.marks[name] = self._place(node)
                self.state.exported.update({name} if is_exported else ())
            elif self.shell.holes.of(field):
                self.shell.ran.sourced.append(
                    make_word(field, self._place(node), self.shell.holes, self.state.directory)
                )

    def _unset(self, node: Node) -> bool:
        for child in node.named_children:
            self.state.variables.pop(self._text(child), None)
        return True

    def _list(self, node: Node) -> bool | None:
        left, sign, right = node.children[0], node.children[1].type, node.children[2]
        status = self.statement(left)
        if sign == "&&":
            if status is False or (status is None and ends(right)):
                return status
            return self.statement(right)
        return status if status is not False else self.statement(right)

    def _pipeline(self, node: Node) -> bool | None:
        if self.output is None:
            return [self.statement(child) for child in node.named_children][-1]
        return self._piped(node)

    def _piped(self, node: Node) -> bool | None:
        """Follow what a command substitution gets from several programs in a row."""
        stdin: str | None = None
        for child in node.named_children:
            inner = self._inner(stdin)
            inner.statement(child)
            stdin = "\n".join(inner.output or ()) if inner.is_known else None
        self.print(stdin)
        return True

    def _inner(self, stdin: str | None = None) -> Follower:
        """Return a follower of what is printed rather than done."""
        inner = Follower(self.shell, self._source, self.state.forked(), self._mark, self._depth + 1, [])
        inner.stdin = stdin
        if self._depth > _DEEPEST:
            raise TooLong
        return inner

    def _negated(self, node: Node) -> bool | None:
        status = self.statement(node.named_children[-1])
        return None if status is None else not status

    def _compound(self, node: Node) -> bool | None:
        if node.children[0].type == "((":
            return self.conditions.test(node)
        return self.block(node.children)

    def _subshell(self, node: Node) -> bool | None:
        state = self.state.forked()
        inner = Follower(self.shell, self._source, state, self._mark, self._depth + 1, self.output)
        inner.stdin = self.stdin
        try:
            return inner.block(node.children)
        except Exited:
            self.shell.ran.end = None
            return None
        finally:
            self.stdin = inner.stdin

    def _if(self, node: Node) -> bool | None:
        """Take the branch that is known; where none is, the first one, unless it is the only one or ends the script."""
        choices = branches(node)
        for condition, body in choices:
            status = self.block(condition) if condition else True
            is_alone = len(choices) == 1
            is_taken = status is True or (status is None and not is_alone and not any(map(ends, body)))
            if status is None and any(map(starts_something, body)) and not any(map(ends, body)):
                self.shell.ran.undecided.append(self._place(node))
            if is_taken:
                return self.block(body)
            if status is None and is_alone and any(map(starts_something, body)) and not any(map(ends, body)):
                return self.block(body)
        return True

    def _for(self, node: Node) -> bool:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = [child for index, child in enumerate(node.children) if node.field_name_for_child(index) == "value"]
        fields = [field for value in values for field in self.expander.fields(value)]
        if not any(child.type == "in" for child in node.children):
            fields = list(self.state.positional)
        if name is None or body is None:
            return True
        for value in fields[:MOST_ROUNDS]:
            self.state.set(self._text(name), value)
            if not self._round(body):
                break
        return True

    def _counted_for(self, node: Node) -> bool:
        body = node.child_by_field_name("body")
        parts = {name: node.child_by_field_name(name) for name in ("initializer", "condition", "update")}
        if body is None:
            return True
        if parts["initializer"] is not None:
            self.expander.arithmetic(self._text(parts["initializer"]))
        for _round in range(MOST_ROUNDS):
            condition = parts["condition"]
            if condition is not None and self.conditions.arithmetic(self._text(condition)) is not True:
                break
            if not self._round(body):
                break
            if parts["update"] is not None:
                self.expander.arithmetic(self._text(parts["update"]))
        return True

    def _while(self, node: Node) -> bool:
        body = node.child_by_field_name("body")
        conditions = [
            child for index, child in enumerate(node.children) if node.field_name_for_child(index) == "condition"
        ]
        is_until = node.children[0].type == "until"
        if body is None:
            return True
        for _round in range(MOST_ROUNDS):
            status = self.block(conditions)
            if status is None or status is is_until or not self._round(body):
                break
        return True

    def _round(self, body: Node) -> bool:
        """Follow one round of a loop; return whether another one may come."""
        self.shell.step()
        try:
            self.block(body.children)
        except Left as leave:
            if leave.word == "return":
                raise
            return leave.word == "continue"
        return True

    def _case(self, node: Node) -> bool:
        """Take the way that is known; where none is, the first one that starts something."""
        value = node.child_by_field_name("value")
        known = self.shell.holes.given(self.expander.text(value)) if value is not None else None
        if known is None:
            self.shell.ran.undecided.append(self._place(node))
        for patterns, body in case_items(node):
            if known is None:
                is_taken = any(map(starts_something, body)) and not any(map(ends, body))
            else:
                is_taken = any(matches(known, self.expander.pattern(pattern)) for pattern in patterns)
            if is_taken:
                self.block(body)
                break
        return True

    def _function(self, node: Node) -> bool:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.state.functions[self._text(name)] = body
        return True

    def _redirected(self, node: Node, is_background: bool = False) -> bool | None:
        body = node.child_by_field_name("body")
        stdin: str | None = None
        target: str | None = None
        is_other = False
        for child in node.named_children:
            if child.type == "heredoc_redirect":
                stdin = self._heredoc(child)
                target = target or self._target(child)
            elif child.type == "herestring_redirect":
                stdin = self._herestring(child)
            elif child.type == "file_redirect":
                target = target or self._destination(child)
                is_other = is_other or any(part.type in ("<", "<&") for part in child.children)
        if body is None:
            return True
        if target is not None and stdin is not None and self._text(body).split()[:1] in (["cat"], ["tee"]):
            self.shell.ran.written[target] = (stdin, self._place(node))
            return True
        before = self.stdin
        if stdin is not None or is_other:
            self.stdin = stdin
        try:
            return self._command(body, is_background) if body.type == "command" else self.statement(body)
        finally:
            self.stdin = before if stdin is not None or is_other else self.stdin

    def _target(self, node: Node) -> str | None:
        return next((self._destination(child) for child in node.named_children if child.type == "file_redirect"), None)

    def _destination(self, node: Node) -> str | None:
        target = node.child_by_field_name("destination")
        is_output = any(child.type in (">", ">>", "&>", "&>>", ">|") for child in node.children)
        has_number = any(child.type == "file_descriptor" and self._text(child) != "1" for child in node.children)
        if target is None or not is_output or has_number:
            return None
        return self.shell.holes.shown(self.expander.text(target), self.state.directory)

    def _heredoc(self, node: Node) -> str:
        start = next((self._text(child) for child in node.children if child.type == "heredoc_start"), "")
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        if body is None:
            return ""
        is_quoted = start[:1] in ("'", '"', "\\")
        return self._text(body) if is_quoted else self.expander.text(body).replace("\\\n", "")

    def _herestring(self, node: Node) -> str:
        return self.expander.text(node.named_children[-1]) + "\n"

    def _command(self, node: Node, is_background: bool = False) -> bool | None:
        self.shell.step(node.named_child_count)
        before = dict(self.state.variables)
        herestring: str | None = None
        words: list[Word] = []
        names: list[str] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                names.append(self._assign(child))
            elif child.type == "herestring_redirect":
                herestring = self._herestring(child)
            elif child.type not in ("file_redirect", "heredoc_redirect"):
                inner = child.named_children[0] if child.type == "command_name" and child.named_children else child
                words += self._words(inner)
        if not words:
            return True
        own = {name: self.state.variables[name] for name in names if name in self.state.variables}
        if words[0].raw != "eval":
            self.state.variables = {n: v for n, v in self.state.variables.items() if n not in own or n in before}
            self.state.variables.update((name, before[name]) for name in own if name in before)
        outside, self.stdin = self.stdin, self.stdin if herestring is None else herestring
        try:
            return self.simple(words, own, self.stdin, is_background)
        finally:
            self.stdin = outside if herestring is not None else self.stdin

    def _words(self, node: Node) -> list[Word]:
        mark = self._place(node)
        holes, directory = self.shell.holes, self.state.directory
        return [make_word(field, mark, holes, directory) for field in self.expander.fields(node)]

    def simple(
        self, words: list[Word], own: dict[str, str | Array], stdin: str | None, is_background: bool = False
    ) -> bool | None:
        """Follow a simple command.

        Args:
            words: its name and arguments.
            own: variables that are set for it alone.
            stdin: what it reads, where that is known.
            is_background: whether the script goes on beside it.
        """
        self.shell.step(len(words))
        self.at = words[0].mark
        name = words[0].raw
        arguments = [word.raw for word in words[1:]]
        if name in self.state.functions and self._depth < _DEEPEST:
            return self._call(self.state.functions[name], arguments)
        builtin = self._builtins.get(name)
        if builtin is not None:
            self.own = own
            return builtin(words[1:], stdin)
        if self.output is not None:
            if name == "getopt":  # Of a script that was given no arguments.
                arguments = [word for word in arguments if self.shell.holes.given(word) != "" or not word]
            is_open = any(map(self.shell.holes.of, [*arguments, stdin or ""]))
            if name in ("cat", "grep") and arguments and not arguments[-1].startswith("-") and stdin is None:
                stdin = self.shell.read(self.shell.holes.shown(arguments[-1])) if not is_open else None
                arguments = arguments[:-1] if stdin is not None else arguments
            self.print(None if is_open else printed(name, arguments, stdin))
            return True
        if len(self.shell.ran.commands) >= _MOST_COMMANDS:
            raise TooLong
        self.shell.ran.commands.append(
            ShellCommand(tuple(words), self._environment(own, words[0].mark), self._here(), is_background)
        )
        return None

    def _environment(self, own: dict[str, str | Array], mark: Mark) -> dict[str, Word]:
        exported = {name: value for name, value in self.state.variables.items() if self.state.is_exported(name)}
        return {
            name: make_word(value, self.state.marks.get(name, mark), self.shell.holes, self.state.directory)
            for name, value in (exported | own).items()
            if isinstance(value, str)
        }

    def _here(self) -> str:
        return self.shell.holes.shown(self.state.directory) if self.state.directory != START else "."

    def _call(self, body: Node, arguments: Sequence[str]) -> bool | None:
        before, was_inside, depth = self.state.positional, self.state.is_inside, self._depth
        self.state.locals.append({})
        self.state.positional, self.state.is_inside, self._depth = list(arguments), True, depth + 1
        try:
            return self.block(body.children) if body.type == "compound_statement" else self.statement(body)
        except Left as leave:
            if leave.word != "return":
                raise
            return leave.is_good
        finally:
            self.state.variables.update({n: v for n, v in self.state.locals[-1].items() if v is not None})
            for name in [name for name, value in self.state.locals.pop().items() if value is None]:
                self.state.variables.pop(name, None)
            self.state.positional, self.state.is_inside, self._depth = before, was_inside, depth

    def _captured(self, node: Node) -> str | None:
        """Return what a command substitution prints; `None` where that is not known."""
        inner = self._inner()
        try:
            inner.block(node.children)
        except (Exited, Left):
            return None
        if not inner.is_known and self.shell.gpus is not None and counts_devices(self._text(node)):
            return str(self.shell.gpus)
        return "\n".join(inner.output or ()) if inner.is_known else None

    def _demand(self, name: str) -> None:
        if name not in self.shell.ran.demanded:
            self.shell.ran.demanded.append(name)

    def is_open(self, text: str) -> bool:
        """Whether all of a text is only known when the script runs."""
        holes = self.shell.holes.of(text)
        return len(holes) == 1 and self.shell.holes.shown(text).strip() == holes[0].text

    def print(self, text: str | None) -> None:
        """Print something; `None` for what is not known."""
        if text is None:
            self.is_known = False
        elif self.output is not None and text and len(self.output) < MOST_ROUNDS:
            self.output.append(text[:LONGEST])

    def _place(self, node: Node) -> Mark:
        return self._mark if self._mark is not None else self._source.mark(node)

    def _text(self, node: Node) -> str:
        return self._source.text(begin(node), node.end_byte)
