"""JSON as people write it: comments and tabs in a document that begins with a brace become blanks, place for place."""

from __future__ import annotations

import re

_BLOCK = r"/\*[^*]*(?:\*(?!/)[^*]*)*"
# What never ends goes to the end of its line, or of the text, so that nothing is looked at twice.
_TOKEN = re.compile(rf'"(?:[^"\\\n]|\\[^\n])*"?|(?<!\S)(?<!: )(?://[^\n]*|{_BLOCK}(?:\*/)?)|\t')
_BEGINS = re.compile(rf"(?:\s|//[^\n]*\n|{_BLOCK}\*/)*\{{")
_NOT_A_BREAK = re.compile(r"[^\n\r]")


def blank_comments(text: str) -> str:
    """Return the text with `//` and `/* */` comments and tabs as blanks, where it is JSON; else as it is.

    YAML takes JSON, but knows neither of them. Everything that stays keeps its line and column.
    """
    if not _BEGINS.match(text):
        return text
    return _TOKEN.sub(lambda found: found[0] if found[0][0] == '"' else _NOT_A_BREAK.sub(" ", found[0]), text)
