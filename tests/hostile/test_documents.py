"""Documents made to do harm: each is refused, or read, within bounds of time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MEMORY_MIB = 300
"""Most that reading all of them one after the other takes, the interpreter and pydantic (some 70) included."""
TIME_S = 10.0
"""Most that one takes of a processor, on a machine that is busy with other tests."""

CHILD = """
import json, sys, time
from dttui.spec import DocumentError, parse_document

mib = 1024**2
head = b"distributed_training:\\n  name: a\\n"
bomb = [b"a0: &a0 [1,1,1,1,1,1,1,1,1]"]
bomb += [b"a%d: &a%d [%s]" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 30)]
documents = {
    "brackets": b"[" * mib,
    "braces": b"{a: " * (mib // 4),
    "objects": b'{"a": ' * (mib // 6),
    "dashes": b"- " * (mib // 2),
    "a large file": head + b"# " + b"x" * (10 * mib),
    "a bomb of aliases": b"\\n".join(bomb),
    "anchors": b"a: [" + b"".join(b"&x%d 1," % n for n in range(90_000)) + b"]",
    "a long text": head + b"  version: '" + b"x" * (mib - 100) + b"'",
    "a long number": head + b"  version: " + b"9" * (mib - 100),
    "pairs of surrogates": b'{"taskName":"' + b"\\\\ud83d\\\\ude00" * 80_000 + b'"}',
    "keys": b"distributed_training:\\n" + b"".join(b"  k%d: 1\\n" % n for n in range(80_000)),
    "keys in brackets": b"{distributed_training: {" + b",".join(b"k%d: 1" % n for n in range(80_000)) + b"}}",
    "one key again and again": b"distributed_training:\\n" + b"  a: 1\\n" * 100_000,
    "things that are no nodes": head + b"  cluster: {nodes: [" + b"1," * 90_000 + b"]}",
    "one node again and again": b'{"taskName":"x","distributedConfig":{"nodeIds":[' + b'"a",' * 90_000 + b'"b"]}}',
    "values of the script's": head + b"  settings: {a: [" + b"1," * 90_000 + b"]}",
    "mistakes in one line": head + b"  run: {args: [" + b"~," * 90_000 + b"], script: a}",
    "many values": b"[" + b"1," * 500_000 + b"]",
    "quotes": b"'" * mib,
    "colons": b":" * mib,
    "lines": b"\\n" * mib,
}
for name, content in documents.items():
    begun, outcome = time.process_time(), "a job"
    try:
        parse_document(content, "job.yaml")
    except DocumentError as error:
        outcome = "a place" if error.problems[0].line else str(error)
    # Not getrusage: its figure is at least what the process had before its exec, which is the test's own.
    status = open("/proc/self/status").read()
    after = int(status.partition("VmHWM:")[2].split()[0])
    print(json.dumps([name, outcome, time.process_time() - begun, after // 1024]))
"""


def test_what_is_made_to_do_harm_is_read_within_bounds_of_time_and_memory() -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", CHILD]
    child = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=root)
    rows = [json.loads(line) for line in child.stdout.splitlines()]
    assert len(rows) == 21
    assert [name for name, _outcome, time_s, _mib in rows if time_s > TIME_S] == []
    assert [(name, mib) for name, _outcome, _time, mib in rows if mib > MEMORY_MIB] == []
    assert {name: outcome for name, outcome, _time, _mib in rows if outcome != "a place"} == {
        "a large file": "job.yaml: larger than 1024 KiB",
        "a long text": "a job",
        "lines": 'job.yaml: the file is empty; a job begins with "distributed_training:"',
    }
