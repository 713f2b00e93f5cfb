"""Laws that hold for any job and any bytes."""

from __future__ import annotations

import time

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dttui.spec import DocumentError, Job, Problem, dump_job, parse_document, parse_job
from dttui.spec.yaml_composer import DOCUMENT
from tests.job_strategies import jobs
from tests.unit.spec.test_schema import EXAMPLES, SEEDS

WORDS = st.sampled_from(
    [
        *("distributed_training", "name", "run", "script", "cluster", "nodes", "id", "resources", "gpu", "memory"),
        *("schema", "dttui/v1", "16GB", "5ms", "none", "dataset", "recovery", "checkpoint", "dashboard", "version"),
        *(
            ": ",
            ":",
            "\n",
            "\n  ",
            "\n    ",
            "- ",
            "? ",
            "[",
            "]",
            "{",
            "}",
            ",",
            "&a ",
            "*a",
            "!!str ",
            "!x ",
            "|",
            ">+\n",
        ),
        *(
            "#",
            " # c",
            "'",
            '"',
            "%YAML 1.2\n",
            "---\n",
            "...\n",
            "<<",
            "~",
            "1e999",
            "0x",
            ".nan",
            "\t",
            "\r",
            "\ufeff",
        ),
        *("\x00", "\x85", "\u2028", "\ud800", "训练", "😀", "horovod_config", "compute_environment", "nodeIds"),
    ]
)
DOCUMENTS = [path.read_bytes() for path in (*EXAMPLES, *SEEDS)]
LIMIT_S = 5.0


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real document in which some bytes are others, or gone, or there twice."""
    content = draw(st.sampled_from(DOCUMENTS))
    for _time in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(start + 40, len(content))))
        content = content[:start] + draw(st.binary(max_size=6) | st.just(content[start:end] * 2)) + content[end:]
    return content


SOUP = st.lists(WORDS, max_size=40).map(lambda words: "".join(words).encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=300) | SOUP | damaged())
@example(b"[" * 200_000)
@example(b"{a: " * 100_000)
@example(b"- " * 300_000)
@example(b"a: &a [1,1,1,1,1,1,1,1,1]\n" + b"".join(b"b%d: [*a,*a,*a,*a]\n" % index for index in range(4000)))
@example(b"distributed_training: {name: a, recovery: {max_restarts: " + b"9" * 5000 + b"}}")
@example(b"distributed_training: {name: a, x: '" + b"\\" * 500_000 + b"'}")
@example(b"'" * 1_000_000)
@example(b"distributed_training:\n" + b"".join(b"  k%d: 1\n" % index for index in range(40_000)))
@settings(max_examples=300)
def test_any_bytes_are_a_job_or_mistakes_with_their_places_and_soon(content: bytes) -> None:
    begun = time.process_time()
    found = job_or_problems(content)
    rendered = [problem.render() for problem in found] if not isinstance(found, Job) else []
    assert time.process_time() - begun < LIMIT_S
    if isinstance(found, Job):
        assert parse_job(dump_job(found), "again") == found
        return
    assert found
    is_whole = content.strip() == b"" or len(content) > DOCUMENT.size_bytes
    for problem, text in zip(found, rendered, strict=True):
        assert problem.message
        assert all(line.isprintable() for line in text.split("\n"))
        if problem.line is None:
            assert is_whole or problem.message == "the file is empty"
        else:
            assert problem.line >= 1
            assert problem.column is not None
            assert problem.column >= 1


def job_or_problems(content: bytes) -> Job | tuple[Problem, ...]:
    try:
        return parse_document(content, "job.yaml").job
    except DocumentError as error:
        return error.problems


@given(jobs())
@settings(max_examples=300)
def test_what_is_written_is_read_as_the_same_job(job: Job) -> None:
    text = dump_job(job)
    again = parse_job(text, "again")
    assert again == job
    assert dump_job(again) == text


def test_examples_load_save_and_load_alike() -> None:
    for content in DOCUMENTS:
        job = parse_job(content, "example")
        assert parse_job(dump_job(job), "again") == job
