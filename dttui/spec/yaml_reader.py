"""Reads YAML files and text into a YamlSource; size, encoding and characters are checked before parsing."""

from __future__ import annotations

import re
from pathlib import Path

from dttui.i18n import _
from dttui.spec.problems import DocumentError, Problem, printable
from dttui.spec.yaml_composer import DOCUMENT, DocumentLimits, compose
from dttui.spec.yaml_source import LINE_BREAK, YamlSource

_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_yaml(path: Path) -> YamlSource:
    """Read a YAML file.

    Raises:
        DocumentError: it cannot be read, or is no YAML that can be accepted; with every problem found.
    """
    name = str(path)
    return parse_yaml(read_bytes(path, name), name)


def read_bytes(path: Path, name: str, limits: DocumentLimits = DOCUMENT) -> bytes:
    """Return what is in a file, at most one byte more than a document may have. Raises DocumentError."""
    try:
        with path.open("rb") as file:
            return file.read(limits.size_bytes + 1)
    except FileNotFoundError as error:
        raise DocumentError([Problem(name, _("no such file"))]) from error
    except IsADirectoryError as error:
        raise DocumentError([Problem(name, _("this is a directory, not a file"))]) from error
    except PermissionError as error:
        raise DocumentError([Problem(name, _("no permission to read this file"))]) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DocumentError([Problem(printable(name), _("cannot be read: {reason}").format(reason=reason))]) from error


def parse_yaml(content: str | bytes, name: str, limits: DocumentLimits = DOCUMENT) -> YamlSource:
    """Parse YAML text; `name` is what problems call it.

    Raises:
        DocumentError: it is no YAML that can be accepted; with every problem found.
    """
    source = compose(decode(content, name, limits), name, limits)
    if source.problems:
        raise DocumentError(source.problems)
    return source


def decode(content: str | bytes, name: str, limits: DocumentLimits = DOCUMENT) -> str:
    """Return a document's text, without a byte order mark.

    Raises:
        DocumentError: it is too large, no UTF-8, or holds characters that YAML forbids.
    """
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    if len(raw) > limits.size_bytes:
        message = _("larger than {limit} KiB").format(limit=limits.size_bytes // 1024)
        raise DocumentError([Problem(name, message)])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        readable = raw.decode("utf-8-sig", "replace")
        position = len(raw[: error.start].decode("utf-8-sig"))
        message = _("byte 0x{byte:02x} is not UTF-8").format(byte=raw[error.start])
        raise _refusal(name, readable, position, message, _("save the file as UTF-8")) from error
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        message = _("character U+{code:04X} is not allowed").format(code=ord(forbidden[0]))
        hint = _("this does not look like a YAML text file") if forbidden[0] == "\0" else ""
        raise _refusal(name, text, forbidden.start(), message, hint)
    return text


def _refusal(name: str, text: str, position: int, message: str, hint: str) -> DocumentError:
    before = LINE_BREAK.split(text[:position])
    line = LINE_BREAK.split(text)[len(before) - 1]
    return DocumentError([Problem(name, message, hint, (), len(before), len(before[-1]) + 1, line)])
