"""Arithmetic of the shell, `$((a * b + 1))`: integers alone, with names of variables and assignments to them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, MutableMapping

_SIGN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,18})|([A-Za-z_][A-Za-z0-9_]*)"
    r"|(\*\*|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%]=|[-+*/%<>=!~&|^?:(),]))"
)
_LOOSEST_TO_TIGHTEST = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_MOST_BITS = 64
_LONGEST = 2_000


class NotKnown(Exception):
    """The value of an expression is not known, or it is no expression."""


def _divided(left: int, right: int) -> int:
    if right == 0:
        raise NotKnown
    return int(abs(left) // abs(right)) * (1 if (left < 0) == (right < 0) else -1)


def _shifted(left: int, right: int) -> int:
    if not 0 <= right < _MOST_BITS:
        raise NotKnown
    return left << right


_BINARY: dict[str, Callable[[int, int], int]] = {
    "||": lambda left, right: int(bool(left) or bool(right)),
    "&&": lambda left, right: int(bool(left) and bool(right)),
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "==": lambda left, right: int(left == right),
    "!=": lambda left, right: int(left != right),
    "<": lambda left, right: int(left < right),
    ">": lambda left, right: int(left > right),
    "<=": lambda left, right: int(left <= right),
    ">=": lambda left, right: int(left >= right),
    "<<": _shifted,
    ">>": lambda left, right: left >> right if 0 <= right < _MOST_BITS else 0,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": lambda left, right: left - right * _divided(left, right),
}


def evaluate(expression: str, names: MutableMapping[str, str]) -> int:
    """Return the value of an expression.

    Args:
        expression: with every `$…` in it expanded already.
        names: values of variables by name; what is assigned to is changed there.

    Raises:
        NotKnown: it is no expression, or the value of one of its names is not known.
    """
    if len(expression) > _LONGEST:
        raise NotKnown
    return _Parser(expression, names).value()


class _Parser:
    def __init__(self, expression: str, names: MutableMapping[str, str]) -> None:
        self._names = names
        self._signs: list[str] = []
        self._at = 0
        end = 0
        text = expression.strip()
        while end < len(text):
            match = _SIGN.match(text, end)
            if match is None:
                raise NotKnown
            self._signs.append(match[0].strip())
            end = match.end()

    def value(self) -> int:
        if not self._signs:
            return 0
        value = self._comma()
        if self._at < len(self._signs):
            raise NotKnown
        return value

    def _comma(self) -> int:
        value = self._assigned()
        while self._take(","):
            value = self._assigned()
        return value

    def _assigned(self) -> int:
        name, sign = self._peek(), self._peek(1)
        if name.isidentifier() and sign in ("=", "+=", "-=", "*=", "/=", "%="):
            self._at += 2
            value = self._assigned()
            if sign != "=":
                value = _BINARY[sign[0]](self._read(name), value)
            return self._write(name, value)
        return self._chosen()

    def _chosen(self) -> int:
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        first = self._assigned()
        self._expect(":")
        second = self._assigned()
        return first if condition else second

    def _binary(self, level: int) -> int:
        if level == len(_LOOSEST_TO_TIGHTEST):
            return self._power()
        value = self._binary(level + 1)
        while self._peek() in _LOOSEST_TO_TIGHTEST[level]:
            sign = self._next()
            value = self._bounded(_BINARY[sign](value, self._binary(level + 1)))
        return value

    def _power(self) -> int:
        base = self._unary()
        if not self._take("**"):
            return base
        exponent = self._power()
        if not 0 <= exponent <= _MOST_BITS or abs(base) >= 1 << _MOST_BITS:
            raise NotKnown
        return self._bounded(int(base**exponent))

    def _unary(self) -> int:
        sign = self._next()
        if sign in ("++", "--"):
            name = self._next()
            return self._write(name, self._read(name) + (1 if sign == "++" else -1))
        if sign in ("-", "+", "!", "~"):
            value = self._unary()
            return {"-": -value, "+": value, "!": int(not value), "~": ~value}[sign]
        if sign == "(":
            value = self._comma()
            self._expect(")")
            return value
        if sign.isidentifier():
            value = self._read(sign)
            if self._peek() in ("++", "--"):
                self._write(sign, value + (1 if self._next() == "++" else -1))
            return value
        return _number(sign)

    def _read(self, name: str) -> int:
        if not name.isidentifier():
            raise NotKnown
        return _number(self._names.get(name, "0").strip() or "0")

    def _write(self, name: str, value: int) -> int:
        self._names[name] = str(self._bounded(value))
        return value

    @staticmethod
    def _bounded(value: int) -> int:
        if abs(value) >= 1 << _MOST_BITS:
            raise NotKnown
        return value

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._signs[at] if at < len(self._signs) else ""

    def _next(self) -> str:
        sign = self._peek()
        if not sign:
            raise NotKnown
        self._at += 1
        return sign

    def _take(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise NotKnown


def _number(text: str) -> int:
    """Return a number as bash reads it: hexadecimal, octal with a 0 before it, else decimal."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    for pattern, base in (("0[xX][0-9a-fA-F]{1,16}", 16), ("0[0-7]{1,20}", 8), ("[0-9]{1,18}", 10)):
        if re.fullmatch(pattern, digits):
            return sign * int(digits, base)
    raise NotKnown
