"""Follows a script and notes the commands that it comes to; starts none of them.

What is not known before it runs stays open. Where that decides a condition, the way is taken on which the script goes
on: what would only end it early is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from dttui.spec.dialects.shell.conditions import Conditions
from dttui.spec.dialects.shell.expansion import LONGEST, Expander
from dttui.spec.dialects.shell.holes import START, Holes, cleaned, entered
from dttui.spec.dialects.shell.patterns import matches
from dttui.spec.dialects.shell.programs import counts_devices, echoed, printed
from dttui.spec.dialects.shell.source import Source, begin
from dttui.spec.dialects.shell.state import State
from dttui.spec.dialects.shell.words import Command, Word, make_word
from dttui.spec.yaml_source import Mark

_MOST_STEPS = 50_000
_MOST_ROUNDS = 1_000
_DEEPEST = 40
_MOST_COMMANDS = 2_000
_LANGUAGE = Language(tree_sitter_bash.language())
_IGNORED = frozenset({"trap", "wait", "ulimit", "umask", "shopt", "setopt", "hash", "alias", "complete", "pushd", "popd"})


class TooLong(Exception):
    """A script does more than is followed."""


class _Exit(Exception):
    """The script ends."""


class _Leave(Exception):
    """A loop or a function is left: `break`, `continue`, `return`."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


@dataclass
class Ran:
    """What a script comes to."""

    commands: list[Command] = field(default_factory=list)
    """Commands that it starts, in their order."""
    written: dict[str, tuple[str, Mark]] = field(default_factory=dict)
    """Text of files that it writes from itself, by path, and where."""
    sourced: list[Word] = field(default_factory=list)
    """Files that it reads commands from, which are not looked at."""
    end: tuple[int, Mark, str] | None = None
    """Exit code, place and last words, where it ends itself by `exit`."""
    unreadable: Mark | None = None
    """Where it is no bash."""


class Shell:
    """Follows scripts.

    Args:
        given: what a variable is that the script does not set, by its name; `None` for none.
        holes: what is open, of all that is followed.
        read: the text of a file that a script reads commands from; `None` where it is not there.
        gpus: GPUs of the host that it runs on; `None` where that is not known.
    """

    def __init__(
        self,
        given: Callable[[str], str | None],
        holes: Holes,
        read: Callable[[str], str | None] = lambda _path: None,
        gpus: int | None = None,
    ) -> None:
        self._given = given
        self.gpus = gpus
        self._read = read
        self.holes = holes
        self.ran = Ran()
        self._steps = 0

    def run(self, text: str, state: State) -> Ran:
        """Follow a script from a state.

        Raises:
            TooLong: it does too much to be followed.
        """
        try:
            self._start(text, state, None, 0)
        except (_Exit, _Leave):
            pass
        except RecursionError:
            raise TooLong from None
        return self.ran

    def inner(self, text: str, command: Command, arguments: Sequence[Word]) -> list[Command]:
        """Return the commands of a script that is itself a word of a command, as after `bash -c`."""
        state = State("bash", [word.raw for word in arguments[1:]], is_inside=bool(arguments))
        return self._apart(text, command, state)

    def _apart(self, text: str, command: Command, state: State) -> list[Command]:
        """Return the commands of a script that begins with the environment of a command."""
        state.variables = {name: word.raw for name, word in command.environment.items()}
        state.exported = set(state.variables)
        state.marks = {name: word.mark for name, word in command.environment.items()}
        state.directory = entered(START, command.directory)
        shell = Shell(self._given, self.holes, self._read, self.gpus)
        try:
            shell._start(text, state, command.mark, 1)
        except (_Exit, _Leave):
            pass
        return shell.ran.commands

    def script(self, command: Command, words: Sequence[Word]) -> list[Command] | None:
        """Return the commands of a script that is a file, the first of its words; `None` where it is not there."""
        text = None if words[0].holes else self._read(words[0].text)
        if text is None:
            return None
        state = State(words[0].raw, [word.raw for word in words[1:]])
        return self._apart(cleaned(text), command, state)

    def _start(self, text: str, state: State, mark: Mark | None, depth: int) -> None:
        if depth > _DEEPEST:
            raise TooLong
        source = Source(cleaned(text) if depth == 0 else text, self.holes)
        tree = Parser(_LANGUAGE).parse(source.parsed)
        if tree.root_node.has_error and self.ran.unreadable is None:
            self.ran.unreadable = mark or source.mark(_first_error(tree.root_node))
        _Follower(self, source, state, mark, depth).block(tree.root_node.children)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise TooLong


class _Follower:
    """Follows one text: a script, or one that it evaluates."""

    def __init__(
        self, shell: Shell, source: Source, state: State, mark: Mark | None, depth: int, output: list[str] | None = None
    ) -> None:
        self._shell = shell
        self._source = source
        self._state = state
        self._mark = mark
        self._depth = depth
        self._output = output
        """What a command substitution has printed so far; `None` outside of one."""
        self._is_known = True
        """Whether all of that is known."""
        self._said = ""
        self._at = Mark(1, 1)
        self._expander = Expander(source, state, shell.holes, shell._given, self._captured)
        self._conditions = Conditions(self._expander, shell.holes)

    def block(self, nodes: Sequence[Node]) -> bool | None:
        """Follow statements one after another; return how the last one ends."""
        status: bool | None = True
        named = [node for node in nodes if node.is_named]
        for node in named:
            after = node.next_sibling
            is_background = after is not None and after.type == "&"
            status = self._statement(node, is_background)
        return status

    def _statement(self, node: Node, is_background: bool = False) -> bool | None:
        self._shell._step()
        handler = _STATEMENTS.get(node.type)
        if handler is not None:
            return handler(self, node)
        if node.type == "command":
            return self._command(node, is_background)
        if node.type == "redirected_statement":
            return self._redirected(node, is_background)
        if node.type == "ERROR":
            return self.block(node.children)
        return True

    # Statements.

    def _assignment(self, node: Node) -> bool:
        self._assign(node)
        return True

    def _assign(self, node: Node) -> str:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return ""
        self._state.marks[self._text(target)] = self._place(node)
        index: str | None = None
        name = self._text(target)
        if target.type == "subscript":
            inner, at = target.child_by_field_name("name"), target.child_by_field_name("index")
            name = self._text(inner) if inner is not None else name
            index = self._expander.text(at) if at is not None else None
        if value is not None and value.type == "array":
            new = self._expander.array(value)
        else:
            new = self._expander.text(value) if value is not None else ""
        if any(child.type == "+=" for child in node.children):
            self._state.append(name, new, index)
        else:
            self._state.set(name, new, index)
        return name

    def _declaration(self, node: Node) -> bool:
        keyword = self._text(node.children[0])
        options = "".join(self._text(child) for child in node.named_children if child.type == "word")
        is_exported = keyword == "export" or (keyword in ("declare", "typeset") and "x" in options)
        for child in node.named_children:
            if child.type == "variable_assignment":
                name = self._assign(child)
            elif child.type == "variable_name":
                name = self._text(child)
                if keyword in ("declare", "local", "typeset") and name not in self._state.variables:
                    self._state.set(name, {} if "A" in options or "a" in options else "")
            elif child.type in ("concatenation", "string"):
                name, separator, value = self._expander.text(child).partition("=")
                if not separator or not name.isidentifier():
                    continue
                self._state.set(name, value)
            else:
                continue
            if is_exported and "n" not in options:
                self._state.exported.add(name)
        return True

    def _unset(self, node: Node) -> bool:
        for child in node.named_children:
            self._state.variables.pop(self._text(child), None)
        return True

    def _list(self, node: Node) -> bool | None:
        left, sign, right = node.children[0], node.children[1].type, node.children[2]
        status = self._statement(left)
        if sign == "&&":
            if status is False or (status is None and _ends(right)):
                return status
            return self._statement(right)
        return status if status is not False else self._statement(right)

    def _pipeline(self, node: Node) -> bool | None:
        if self._output is None:
            return [self._statement(child) for child in node.named_children][-1]
        return self._piped(node)

    def _piped(self, node: Node) -> bool | None:
        """Follow what a command substitution gets from several programs in a row."""
        stdin: str | None = None
        for child in node.named_children:
            inner = self._inner(stdin)
            inner._statement(child)
            stdin = "\n".join(inner._output or ()) if inner._is_known else None
        self._print(stdin)
        return True

    def _inner(self, stdin: str | None = None) -> _Follower:
        """Return a follower of what is printed rather than done."""
        inner = _Follower(self._shell, self._source, self._state.forked(), self._mark, self._depth + 1, [])
        inner._stdin = stdin
        if self._depth > _DEEPEST:
            raise TooLong
        return inner

    _stdin: str | None = None

    def _negated(self, node: Node) -> bool | None:
        status = self._statement(node.named_children[-1])
        return None if status is None else not status

    def _test(self, node: Node) -> bool | None:
        return self._conditions.test(node)

    def _compound(self, node: Node) -> bool | None:
        if node.children[0].type == "((":
            return self._conditions.test(node)
        return self.block(node.children)

    def _subshell(self, node: Node) -> bool | None:
        state = self._state.forked()
        inner = _Follower(self._shell, self._source, state, self._mark, self._depth + 1, self._output)
        return inner.block(node.children)

    def _if(self, node: Node) -> bool | None:
        """Take the branch that is known; where none is, the first one, unless it is the only one or ends the script."""
        branches = _branches(node)
        for condition, body in branches:
            status = self.block(condition) if condition else True
            is_alone = len(branches) == 1
            if status is True or (status is None and not is_alone and not any(map(_ends, body))):
                return self.block(body)
            if status is None and is_alone and any(map(_starts_something, body)) and not any(map(_ends, body)):
                return self.block(body)
        return True

    def _for(self, node: Node) -> bool:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = [child for index, child in enumerate(node.children) if node.field_name_for_child(index) == "value"]
        fields = [field for value in values for field in self._expander.fields(value)]
        if not any(child.type == "in" for child in node.children):
            fields = list(self._state.positional)
        if name is None or body is None:
            return True
        for value in fields[:_MOST_ROUNDS]:
            self._state.set(self._text(name), value)
            if not self._round(body):
                break
        return True

    def _counted_for(self, node: Node) -> bool:
        body = node.child_by_field_name("body")
        parts = {
            name: node.child_by_field_name(name) for name in ("initializer", "condition", "update")
        }
        if body is None:
            return True
        if parts["initializer"] is not None:
            self._expander.arithmetic(self._text(parts["initializer"]))
        for _round in range(_MOST_ROUNDS):
            condition = parts["condition"]
            if condition is not None and self._conditions.arithmetic(self._text(condition)) is not True:
                break
            if not self._round(body):
                break
            if parts["update"] is not None:
                self._expander.arithmetic(self._text(parts["update"]))
        return True

    def _while(self, node: Node) -> bool:
        body = node.child_by_field_name("body")
        conditions = [child for index, child in enumerate(node.children) if node.field_name_for_child(index) == "condition"]
        is_until = node.children[0].type == "until"
        if body is None:
            return True
        for _round in range(_MOST_ROUNDS):
            status = self.block(conditions)
            if status is None or status is is_until or not self._round(body):
                break
        return True

    def _round(self, body: Node) -> bool:
        """Follow one round of a loop; return whether another one may come."""
        self._shell._step()
        try:
            self.block(body.children)
        except _Leave as leave:
            if leave.word == "return":
                raise
            return leave.word == "continue"
        return True

    def _case(self, node: Node) -> bool:
        value = node.child_by_field_name("value")
        known = self._shell.holes.given(self._expander.text(value)) if value is not None else None
        if known is None:
            return True
        for item in node.named_children:
            if item.type != "case_item":
                continue
            patterns, body = [], []
            for index, child in enumerate(item.children):
                if item.field_name_for_child(index) == "value":
                    patterns.append(child)
                elif child.is_named:
                    body.append(child)
            if any(matches(known, self._expander.pattern(pattern)) for pattern in patterns):
                self.block(body)
                break
        return True

    def _function(self, node: Node) -> bool:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self._state.functions[self._text(name)] = body
        return True

    def _redirected(self, node: Node, is_background: bool = False) -> bool | None:
        body = node.child_by_field_name("body")
        stdin: str | None = None
        target: str | None = None
        for child in node.named_children:
            if child.type == "heredoc_redirect":
                stdin = self._heredoc(child)
                target = target or self._target(child)
            elif child.type == "herestring_redirect":
                stdin = self._expander.text(child.named_children[-1])
            elif child.type == "file_redirect":
                target = target or self._destination(child)
        if body is None:
            return True
        if target is not None and stdin is not None and self._text(body).split()[:1] in (["cat"], ["tee"]):
            self._shell.ran.written[target] = (stdin, self._place(node))
            return True
        before, self._stdin = self._stdin, stdin if stdin is not None else self._stdin
        status = self._command(body, is_background) if body.type == "command" else self._statement(body)
        self._stdin = before
        return status

    def _target(self, node: Node) -> str | None:
        return next(
            (self._destination(child) for child in node.named_children if child.type == "file_redirect"), None
        )

    def _destination(self, node: Node) -> str | None:
        target = node.child_by_field_name("destination")
        is_output = any(child.type in (">", ">>", "&>", "&>>", ">|") for child in node.children)
        has_number = any(child.type == "file_descriptor" and self._text(child) != "1" for child in node.children)
        if target is None or not is_output or has_number:
            return None
        return self._shell.holes.shown(self._expander.text(target), self._state.directory)

    def _heredoc(self, node: Node) -> str:
        start = next((self._text(child) for child in node.children if child.type == "heredoc_start"), "")
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        if body is None:
            return ""
        is_quoted = start[:1] in ("'", '"', "\\")
        return self._text(body) if is_quoted else self._expander.text(body).replace("\\\n", "")

    # Simple commands.

    def _command(self, node: Node, is_background: bool = False) -> bool | None:
        before = dict(self._state.variables), set(self._state.exported)
        stdin = self._stdin
        words: list[Word] = []
        names: list[str] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                names.append(self._assign(child))
            elif child.type == "herestring_redirect":
                stdin = self._expander.text(child.named_children[-1])
            elif child.type not in ("file_redirect", "heredoc_redirect"):
                inner = child.named_children[0] if child.type == "command_name" and child.named_children else child
                words += self._words(inner)
        if not words:
            return True
        own = {name: self._state.variables[name] for name in names if name in self._state.variables}
        if words[0].raw not in ("read", "eval"):
            self._state.variables, self._state.exported = before
        return self._simple(words, own, stdin, is_background)

    def _words(self, node: Node) -> list[Word]:
        mark = self._place(node)
        holes, directory = self._shell.holes, self._state.directory
        return [make_word(field, mark, holes, directory) for field in self._expander.fields(node)]

    def _simple(
        self, words: list[Word], own: dict[str, str | dict[str, str]], stdin: str | None, is_background: bool
    ) -> bool | None:
        self._shell._step()
        self._at = words[0].mark
        name = words[0].raw
        arguments = [word.raw for word in words[1:]]
        if name in self._state.functions and self._depth < _DEEPEST:
            return self._call(self._state.functions[name], arguments)
        builtin = _BUILTINS.get(name)
        if builtin is not None:
            return builtin(self, words[1:], stdin)
        if name in _IGNORED:
            return True
        if self._output is not None:
            is_open = any(map(self._shell.holes.of, [*arguments, stdin or ""]))
            self._print(None if is_open else printed(name, arguments, stdin))
            return True
        if len(self._shell.ran.commands) >= _MOST_COMMANDS:
            raise TooLong
        self._shell.ran.commands.append(Command(tuple(words), self._environment(own, words[0].mark), self._here(), is_background))
        return None

    def _environment(self, own: dict[str, str | dict[str, str]], mark: Mark) -> dict[str, Word]:
        exported = {name: value for name, value in self._state.variables.items() if self._state.is_exported(name)}
        return {
            name: make_word(value, self._state.marks.get(name, mark), self._shell.holes, self._state.directory)
            for name, value in (exported | own).items()
            if isinstance(value, str)
        }

    def _here(self) -> str:
        return self._shell.holes.shown(self._state.directory) if self._state.directory != START else "."

    def _call(self, body: Node, arguments: Sequence[str]) -> bool | None:
        before, was_inside, depth = self._state.positional, self._state.is_inside, self._depth
        self._state.positional, self._state.is_inside, self._depth = list(arguments), True, depth + 1
        try:
            return self.block(body.children) if body.type == "compound_statement" else self._statement(body)
        except _Leave as leave:
            if leave.word != "return":
                raise
            return True
        finally:
            self._state.positional, self._state.is_inside, self._depth = before, was_inside, depth

    def _captured(self, node: Node) -> str | None:
        """Return what a command substitution prints; `None` where that is not known."""
        inner = self._inner()
        try:
            inner.block(node.children)
        except (_Exit, _Leave):
            return None
        if not inner._is_known and self._shell.gpus is not None and counts_devices(self._text(node)):
            return str(self._shell.gpus)
        return "\n".join(inner._output or ()) if inner._is_known else None

    def _print(self, text: str | None) -> None:
        if text is None:
            self._is_known = False
        elif self._output is not None and text and len(self._output) < _MOST_ROUNDS:
            self._output.append(text[:LONGEST])

    # What the shell itself does.

    def _cd(self, words: list[Word], _stdin: str | None) -> bool:
        paths = [word.raw for word in words if word.raw not in ("-P", "-L", "--")]
        if len(paths) == 1 and paths[0] != "-":
            self._state.directory = entered(self._state.directory, paths[0])
        return True

    def _pwd(self, _words: list[Word], _stdin: str | None) -> bool:
        self._print(self._state.directory)
        return True

    def _echo(self, words: list[Word], stdin: str | None) -> bool:
        text = echoed([word.raw for word in words])
        if self._output is not None:
            self._print(text)
        else:
            self._said = echoed([word.text for word in words])
        return True

    def _set(self, words: list[Word], _stdin: str | None) -> bool:
        arguments = [word.raw for word in words]
        if "--" in arguments:
            self._state.positional = arguments[arguments.index("--") + 1 :]
        elif arguments[:1] in (["-a"], ["+a"]):
            self._state.exports_all = arguments[0] == "-a"
        return True

    def _shift(self, words: list[Word], _stdin: str | None) -> bool:
        count = words[0].raw if words else "1"
        if not count.isdecimal() or int(count) > len(self._state.positional):
            return False
        del self._state.positional[: int(count)]
        return True

    def _read_names(self, words: list[Word], stdin: str | None) -> bool | None:
        arguments = [word.raw for word in words]
        names = [word for word in arguments if word.isidentifier()]
        options = "".join(word for word in arguments if re.fullmatch("-[a-z]+", word))
        if stdin is None or not names:
            return None  # Of a terminal or a file.
        separators = self._state.value("IFS")
        parts = re.split(f"[{re.escape(separators)}]", stdin) if separators and separators.strip() else stdin.split()
        if "a" in options:
            self._state.set(names[-1], {str(index): part.strip() for index, part in enumerate(parts)})
        elif len(names) == 1:
            self._state.set(names[0], stdin.strip("\n"))
        else:
            for index, name in enumerate(names):
                rest = parts[index:] if index == len(names) - 1 else parts[index : index + 1]
                self._state.set(name, " ".join(rest))
        self._state.variables.pop("IFS", None)
        return "d" in options or True

    def _source(self, words: list[Word], _stdin: str | None) -> bool | None:
        if not words:
            return False
        is_python = words[0].text.endswith("/activate")
        text = None if is_python or words[0].holes else self._shell._read(words[0].text)
        if text is None:
            self._shell.ran.sourced.append(words[0])
            return None
        self._shell._start(cleaned(text), self._state, words[0].mark, self._depth + 1)
        return True

    def _eval(self, words: list[Word], _stdin: str | None) -> bool:
        text = " ".join(word.raw for word in words)
        if words and self._output is None:
            self._shell._start(text, self._state, words[0].mark, self._depth + 1)
        elif words:
            self._print(None)
        return True

    def _exec(self, words: list[Word], stdin: str | None) -> bool | None:
        return self._simple(words, {}, stdin, False) if words else True

    def _exit(self, words: list[Word], _stdin: str | None) -> bool:
        code = words[0].raw if words else "0"
        if self._output is None:
            number = int(code) % 256 if re.fullmatch(r"-?[0-9]{1,9}", code) else 1
            self._shell.ran.end = (number, self._at, self._said)
        raise _Exit

    def _leave(self, word: str) -> bool:
        raise _Leave(word)

    def _getopts(self, words: list[Word], _stdin: str | None) -> bool | None:
        """Take the next option of the arguments, as `getopts "n:g:" name` does."""
        if len(words) < 2:
            return False
        letters, name = words[0].raw, words[1].raw
        at = int(self._state.value("OPTIND") or "1")
        arguments = self._state.positional
        option = arguments[at - 1] if at <= len(arguments) else ""
        if not re.fullmatch("-[A-Za-z].*", option):
            return False
        letter, rest = option[1], option[2:]
        takes_value = f"{letter}:" in letters
        value = rest if rest or not takes_value else "".join(arguments[at : at + 1])
        self._state.set(name, letter if letter in letters.replace(":", "") else "?")
        self._state.set("OPTARG", value if takes_value else "")
        self._state.set("OPTIND", str(at + (2 if takes_value and not rest else 1)))
        return True

    def _test_words(self, words: list[Word], _stdin: str | None) -> bool | None:
        arguments = [word.raw for word in words]
        return self._conditions.words(arguments[:-1] if arguments[-1:] == ["]"] else arguments)

    def _let(self, words: list[Word], _stdin: str | None) -> bool:
        for word in words:
            self._expander.arithmetic(word.raw)
        return True

    def _lines(self, words: list[Word], stdin: str | None) -> bool | None:
        names = [word.raw for word in words if word.raw.isidentifier()]
        if stdin is None or not names:
            return None
        self._state.set(names[-1], {str(index): line for index, line in enumerate(stdin.splitlines())})
        return True

    def _place(self, node: Node) -> Mark:
        return self._mark if self._mark is not None else self._source.mark(node)

    def _text(self, node: Node) -> str:
        return self._source.text(begin(node), node.end_byte)


def _branches(node: Node) -> list[tuple[list[Node], list[Node]]]:
    """Return conditions and bodies of an `if`; of its `else`, no conditions."""
    conditions: list[Node] = []
    body: list[Node] = []
    branches = [(conditions, body)]
    is_body = False
    for child in node.children:
        if child.type == "then":
            is_body = True
        elif child.type == "elif_clause":
            branches += _branches(child)
        elif child.type == "else_clause":
            branches.append(([], [item for item in child.children if item.is_named]))
        elif child.is_named and child.type != "comment":
            (body if is_body else conditions).append(child)
    return branches


def _ends(node: Node) -> bool:
    """Whether a statement ends the script by itself: `exit`, or `return` and the like."""
    if node.type == "command":
        return (node.text or b"").split()[:1] in ([b"exit"], [b"return"], [b"break"], [b"continue"])
    if node.type in ("list", "compound_statement", "redirected_statement", "subshell"):
        return any(map(_ends, node.named_children))
    return False


def _starts_something(node: Node) -> bool:
    """Whether a statement starts a program of some length, rather than setting or printing something."""
    if node.type == "command":
        return node.named_child_count > 2 and (node.text or b"").split()[:1] not in ([b"echo"], [b"mkdir"], [b"rm"])
    return any(map(_starts_something, node.named_children)) if node.type != "function_definition" else False


def _first_error(node: Node) -> Node:
    """Return where a tree begins to be no bash."""
    for child in node.children:
        if child.is_error or child.is_missing:
            return child
        if child.has_error:
            return _first_error(child)
    return node


_STATEMENTS: dict[str, Callable[[_Follower, Node], bool | None]] = {
    "variable_assignment": _Follower._assignment,
    "variable_assignments": lambda follower, node: follower.block(node.children),
    "declaration_command": _Follower._declaration,
    "unset_command": _Follower._unset,
    "list": _Follower._list,
    "pipeline": _Follower._pipeline,
    "negated_command": _Follower._negated,
    "test_command": _Follower._test,
    "compound_statement": _Follower._compound,
    "subshell": _Follower._subshell,
    "if_statement": _Follower._if,
    "for_statement": _Follower._for,
    "c_style_for_statement": _Follower._counted_for,
    "while_statement": _Follower._while,
    "case_statement": _Follower._case,
    "function_definition": _Follower._function,
}
_BUILTINS: dict[str, Callable[[_Follower, list[Word], str | None], bool | None]] = {
    "cd": _Follower._cd,
    "pwd": _Follower._pwd,
    "echo": _Follower._echo,
    "set": _Follower._set,
    "shift": _Follower._shift,
    "read": _Follower._read_names,
    "source": _Follower._source,
    ".": _Follower._source,
    "eval": _Follower._eval,
    "exec": _Follower._exec,
    "exit": _Follower._exit,
    "break": lambda follower, _words, _stdin: follower._leave("break"),
    "continue": lambda follower, _words, _stdin: follower._leave("continue"),
    "return": lambda follower, _words, _stdin: follower._leave("return"),
    "test": _Follower._test_words,
    "[": _Follower._test_words,
    "let": _Follower._let,
    "getopts": _Follower._getopts,
    "mapfile": _Follower._lines,
    "readarray": _Follower._lines,
    ":": lambda _follower, _words, _stdin: True,
    "true": lambda _follower, _words, _stdin: True,
    "false": lambda _follower, _words, _stdin: False,
}
