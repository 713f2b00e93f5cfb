"""Writes plain data as YAML that reads back the same under YAML 1.1 and 1.2."""

from __future__ import annotations

from typing import Any

import yaml

from dttui.spec.yaml_composer import plain_scalar

_WIDTH = 110
_ENDLESS = 10**9


def dump_yaml(document: Any) -> str:
    """Return a document in block style."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


def flow(data: Any, *, quotes: str = "") -> str:
    """Return data on one line, as it may stand in any place of a document.

    Args:
        data: what to write.
        quotes: marks to put around it where it is text and bears them.
    """
    if isinstance(data, str) and quotes:
        text = yaml.dump(data, Dumper=_Dumper, default_style=quotes, allow_unicode=True, width=_ENDLESS)
        return text.rstrip("\n")
    text = yaml.dump(
        [data], Dumper=_Dumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=_ENDLESS
    )
    return text.rstrip("\n")[1:-1]


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would read as something other than text."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists under their key."""
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        """Write values out where the same object comes twice."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if any(character in _LINE_BREAKS for character in text):
        style = '"'
    elif not isinstance(plain_scalar(text), str):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_LINE_BREAKS = "\n\x85\u2028\u2029"
_Dumper.add_representer(str, _represent_text)
