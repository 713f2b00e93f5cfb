"""YAML as data with places: the core schema's scalars, the bounds, and the words for what is refused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from dttui.spec import yaml_composer
from dttui.spec.problems import DocumentError, Problem
from dttui.spec.yaml_composer import DOCUMENT, MAX_DEPTH, DocumentLimits
from dttui.spec.yaml_reader import parse_yaml, read_yaml
from dttui.spec.yaml_source import Mark


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with libyaml and with the parser in Python: some machines have only the latter."""
    monkeypatch.setattr(yaml_composer, "_PARSER", getattr(yaml, request.param))


def refused(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(DocumentError) as caught:
        parse_yaml(text, "job.yaml")
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:30", "12:30"),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("+12", 12),
        ("-3", -3),
        ("yes", "yes"),
        ("No", "No"),
        ("on", "on"),
        ("y", "y"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01 10:00:00", "2024-01-01 10:00:00"),
        ("true", True),
        ("FALSE", False),
        ("tRUE", "tRUE"),
        ("~", None),
        ("null", None),
        ("", None),
        ("1.0", 1.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("7e9", 7e9),
        ("1e-4", 1e-4),
        ("-.inf", float("-inf")),
        ("=", "="),
        ("'12'", "12"),
        ('"true"', "true"),
        ("! 12", "12"),
        ("!!str 12", "12"),
        ("!!int '12'", 12),
        ("!!float 3", 3.0),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    data = parse_yaml(f"k: {text}", "x").data["k"]
    assert data == value
    assert type(data) is type(value)


def test_not_a_number_is_a_float() -> None:
    assert repr(parse_yaml("k: .NaN", "x").data["k"]) == "nan"


@pytest.mark.parametrize("text", ["'<<': 1\n", '{"<<": 1}'])
def test_what_merges_without_quotes_is_a_key_in_them(text: str) -> None:
    assert parse_yaml(text, "x").data == {"<<": 1}


def test_keys_are_text_as_written() -> None:
    assert parse_yaml("{1: a, true: b, ~: c, 1.50: d, on: e}", "x").data == dict(
        zip(("1", "true", "~", "1.50", "on"), "abcde", strict=True)
    )


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "---\n...\n"])
def test_a_document_of_nothing_is_empty(text: str) -> None:
    assert parse_yaml(text, "x").is_empty


def test_a_byte_order_mark_is_no_part_of_the_document() -> None:
    assert parse_yaml(b"\xef\xbb\xbfa: 1\n", "x").data == {"a": 1}


def test_places_are_known_for_keys_and_values() -> None:
    source = parse_yaml("a:\n  - b: 1\n    c:  [x, y]\n  - 2\n", "x")
    assert source.key_mark(("a",)) == Mark(1, 1)
    assert source.mark(("a", 0, "b")) == Mark(2, 8)
    assert source.key_mark(("a", 0, "c")) == Mark(3, 5)
    assert source.mark(("a", 0, "c", 1)) == Mark(3, 13)
    assert source.mark(("a", 1)) == Mark(4, 5)


def test_the_place_of_what_is_not_there_is_that_of_the_nearest_thing_above() -> None:
    source = parse_yaml("a:\n  b: {c: 1}\n", "x")
    assert source.mark(("a", "b", "nothing", 3)) == Mark(2, 6)


def test_a_place_inside_an_alias_is_where_the_value_is_written() -> None:
    source = parse_yaml("a: &x {k: 1}\nb: *x\n", "x")
    assert source.data == {"a": {"k": 1}, "b": {"k": 1}}
    assert source.mark(("b", "k")) == Mark(1, 11)


def test_a_plain_scalar_remembers_what_was_written() -> None:
    source = parse_yaml("{a: 1e-4, b: '1e-4', c: [010]}", "x")
    assert source.written(("a",)) == "1e-4"
    assert source.written(("b",)) is None
    assert source.written(("c", 0)) == "010"


def test_pairs_of_surrogates_are_one_character_in_json_and_places_stay() -> None:
    text = '{"a \\ud83d\\ude00 \\\\ud83d\\\\ude00 \\/": "\\uD83D\\uDE80\\u4e2d",\n'
    text += ' "b": ["\\ud83d\\ude00", \'\\ud83d\\ude00\'], "c": 1}'
    source = parse_yaml(text, "x.json")
    assert source.data == {"a 😀 \\ud83d\\ude00 /": "🚀中", "b": ("😀", "\\ud83d\\ude00"), "c": 1}
    assert source.mark(("b", 0)) == Mark(2, 8)
    assert source.key_mark(("c",)) == Mark(2, 41)


@pytest.mark.parametrize("text", ['{"a": "\\ud83d"}', '{"a": "\\ude00\\ud83d"}', '{"\\ud83dx": 1}', 'a: "\\ud83d"'])
def test_half_of_a_pair_is_no_character(text: str) -> None:
    assert "half of a pair of surrogates" in refused(text)[0].message


@pytest.mark.parametrize("text", ['{"a": NaN}', '{ // c\n"a": [1, Infinity]}', '{"a": {"b": -Infinity}}'])
def test_json_has_no_such_numbers(text: str) -> None:
    assert refused(text)[0].message.endswith("is no value of JSON")
    assert isinstance(parse_yaml(text.replace('"a"', "a"), "x").data, dict)


def test_json_is_bounded_like_yaml() -> None:
    assert "nested deeper" in refused('{"a": ' * 100 + "1" + "}" * 100)[0].message
    assert "twice" in refused('{"a": 1, "a": 2}')[0].message


def test_all_duplicate_keys_are_named_with_their_places() -> None:
    problems = refused("a: 1\nb:\n  - {x: 1, 'x': 2}\na: 3\n")
    assert [(item.line, item.column, str(item.path)) for item in problems] == [
        (3, 12, "('b', 0, 'x')"),
        (4, 1, "('a',)"),
    ]
    assert "the first is in line 1" in problems[1].message


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: !!python/object:os.system x\n", (1, 4), "tag tag:yaml.org,2002:python/object:os.system is not allowed"),
        ("a: !!binary aGk=\n", (1, 4), "is not allowed"),
        ("a: !mine {}\n", (1, 4), "tag !mine is not allowed"),
        ("a: !!int twelve\n", (1, 4), '"twelve" is not of type int'),
        ("a: &x [*x]\n", (1, 8), 'alias "x" is inside what it stands for'),
        ("a: *nowhere\n", (1, 4), 'no anchor "nowhere" before this'),
        ("a: 1\n---\nb: 2\n", (2, 1), "a second document begins here"),
        ("? [1, 2]\n: 3\n", (1, 3), "a key must be text"),
        ("a: {<<: {b: 1}}\n", (1, 5), "merge keys are not part of YAML 1.2"),
        ("a: b: c\n", (1, 5), "not valid YAML: a colon cannot stand here"),
        ("a: 'never closed\n", (1, 4), "not valid YAML: a quote is not closed"),
        ("a:\n\t- b\n", None, "not valid YAML"),
        ("a: \x07\n", (1, 4), "character U+0007 is not allowed"),
        ("a: \x00\n", (1, 4), "this does not look like a YAML text file"),
        (b"ab: \xff\n", (1, 5), "byte 0xff is not UTF-8; save the file as UTF-8"),
        ("é: 1\n".encode() + b"x: \xc3(\n", (2, 4), "byte 0xc3 is not UTF-8"),
        ("a: " + "9" * 500, (1, 4), "a number of 500 digits is too long"),
    ],
)
def test_what_is_refused_is_refused_with_its_place(
    text: str | bytes, place: tuple[int, int] | None, words: str
) -> None:
    (problem,) = refused(text)
    assert words in str(problem)
    if place is not None:
        assert (problem.line, problem.column) == place


def test_a_tab_as_indentation_is_explained() -> None:
    (problem,) = refused("a:\n  b: 1\n\tc: 2\n")
    assert problem.line == 3
    assert "spaces" in problem.hint


def test_a_lone_surrogate_in_text_is_refused() -> None:
    assert "is not" in str(refused("a: \ud800")[0])


def test_nesting_is_bounded_before_anything_is_built() -> None:
    assert parse_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH, "x").data is not None
    began = time.process_time()
    (problem,) = refused("[" * 500_000)
    assert problem.column == MAX_DEPTH + 1
    assert time.process_time() - began < 5


def test_nesting_through_aliases_counts() -> None:
    deep = "a: &a " + "[" * 40 + "]" * 40 + "\n"
    assert parse_yaml(deep + "b: [*a]\n", "x").data
    assert "nested deeper" in refused(deep + "b: " + "[" * 10 + "*a" + "]" * 10 + "\n")[0].message


def test_aliases_cannot_stand_for_millions_of_values() -> None:
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1]"]
    for level in range(1, 9):
        lines.append(f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 9)}]")
    began = time.process_time()
    (problem,) = refused("\n".join(lines))
    assert f"more than {DOCUMENT.aliased_values} values" in problem.message
    assert time.process_time() - began < 1


def test_a_document_that_is_too_large_is_not_parsed() -> None:
    (problem,) = refused("# " + "x" * DOCUMENT.size_bytes)
    assert problem.message == "larger than 1024 KiB"
    assert problem.line is None


def test_too_many_values_are_refused() -> None:
    with pytest.raises(DocumentError, match="more than 5 values"):
        parse_yaml("[1, 2, 3, 4, 5, 6]", "x", DocumentLimits(values=5))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path / "none.yaml", "no such file"),
        (lambda path: path, "this is a directory, not a file"),
        (lambda path: Path("a\0b"), "cannot be read"),
        (lambda path: Path("/dev/zero"), "larger than 1024 KiB"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_so(make: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=words):
        read_yaml(make(tmp_path))


def test_a_file_without_read_permission_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read anything, so that a mode would not do
    with pytest.raises(DocumentError, match="no permission to read this file"):
        read_yaml(tmp_path / "secret.yaml")
