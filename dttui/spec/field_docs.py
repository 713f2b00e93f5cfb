"""What stands under the fields of a model, for people: in a JSON Schema, and beside a form."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def field_docs(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the docstring under each field that has one; none where the model's source cannot be read.

    Read here, since pydantic's own way costs every start 0.1 s.
    """
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        statements = _statements(base)
        for statement, following in pairwise(statements):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found


def paragraphs(text: str) -> tuple[str, ...]:
    """Return the paragraphs of a docstring, each in a line: as the catalogues have them."""
    return tuple(" ".join(part.split()) for part in text.split("\n\n"))


def _statements(model: type[BaseModel]) -> list[ast.stmt]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    except (OSError, TypeError, SyntaxError):  # Made at run time, or shipped without its source.
        return []
    return body.body if isinstance(body, ast.ClassDef) else []
