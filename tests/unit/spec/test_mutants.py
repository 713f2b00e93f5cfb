"""Real documents in which one or two values, keys or entries are of another kind: mistakes with a place, or jobs.

`python -m tests.unit.spec.test_mutants 100000 7` tries so many by hand, from that seed on.
"""

from __future__ import annotations

import copy
import math
import random
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from dttui.inventory.demo import demo_inventory
from dttui.inventory.reader import parse_inventory
from dttui.planning.planner import plan
from dttui.spec import DocumentError, parse_document, parse_job
from dttui.spec.importing import translate_file
from dttui.spec.json_text import blank_comments
from dttui.spec.models import Job

ROOT = Path(__file__).parents[3]
DOCUMENTS = [*sorted(ROOT.glob("examples/*/job.yaml")), *sorted((Path(__file__).parents[1] / "seeds").iterdir())]
INVENTORY = """
environments:
  - {name: a, host: gpu1, user: me, port: 22, zone: z, kind: jupyter, image: pytorch, proxy_jump: gate,
     python: /opt/python, known_hosts: /k, port_range: 29500-29999, address: 10.0.0.1, agent_root: /x,
     resources: {gpu: {count: 2, type: A100, memory: 80GB, simulated: false}, cpu: {cores: 16, memory: 128GB}}}
  - {name: b}
datasets:
  - {id: imagenet, versions: [{id: v1, path: /data}]}
"""
IMPORTED = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_offload_params: false}
machine_rank: 0
main_process_ip: 10.0.0.1
main_process_port: 29500
mixed_precision: bf16
num_machines: 2
num_processes: 4
""", """
train_batch_size: 64
train_micro_batch_size_per_gpu: 4
optimizer: {type: AdamW, params: {lr: 0.001, betas: [0.9, 0.95]}}
zero_optimization: {stage: 2, offload_optimizer: {device: cpu, pin_memory: true}, reduce_bucket_size: 5.0e+8}
bf16: {enabled: true}
gradient_clipping: 1.0
"""  # fmt: skip
WRONG: list[Any] = [
    *({"a": "b"}, {}, {1: 2}, {None: None}, {"": ""}, [], ["a"], [[]], [{"a": []}], [None], None, True, False),
    *(0, 1, -1, 2**31, 2**63, 2**64, 10**40, -(10**400), 0.0, -0.0, 1.5, 1e308, math.inf, -math.inf, math.nan),
    *("", " ", "a", "1", "yes", "null", "~", "1e999", "nan", "0x1F", "16GB", "-5s", "9" * 400, "x" * 5000),
    *(date(2020, 1, 1), b"bytes", "[/x]", "${JOB_ID}", "../..", "/", "a: b", "- a", "{", "训练", "\ud83d", "\x00"),
]
KEYS: list[Any] = [1, 1.5, True, None, date(2020, 1, 1), "", "x" * 300, "a b", "a.b", "训练", "\x07", b"b", (1, 2)]


def places_in(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in a document, containers too."""
    if path:
        yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from places_in(value, (*path, key))


def mutant(original: Any, chance: random.Random) -> Any:
    """Return a document in which one to three things are others."""
    data = copy.deepcopy(original)
    for _time in range(chance.choice((1, 1, 2, 3))):
        places = list(places_in(data))
        if not places:
            return data
        *parents, last = chance.choice(places)
        holder = data
        for key in parents:
            holder = holder[key]
        match chance.randrange(8):
            case 0:
                del holder[last]
            case 1 if isinstance(holder, dict):
                holder[chance.choice(KEYS)] = holder.pop(last)
            case 2 if isinstance(holder, dict):
                holder[chance.choice(KEYS)] = copy.deepcopy(holder[last])
            case 3:
                holder[last] = [copy.deepcopy(holder[last])] * chance.choice((1, 2, 70))
            case 4:
                source = data
                for key in chance.choice(places):
                    source = source[key] if isinstance(source, (dict, list)) and _has(source, key) else source
                holder[last] = copy.deepcopy(source)
            case _:
                holder[last] = copy.deepcopy(chance.choice(WRONG))
    return data


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else isinstance(key, int) and key < len(holder)


def written(data: Any, chance: random.Random) -> bytes:
    """Return a document as text, in one of the styles of YAML. Raises what PyYAML does where it cannot write it."""
    style = chance.choice((None, True, False))
    text: str = yaml.dump(data, sort_keys=False, allow_unicode=chance.random() < 0.5, default_flow_style=style)
    return text.encode("utf-8", "surrogatepass")


def look(content: bytes, read: Callable[[bytes], object]) -> object:
    """Read a document; what is wrong with it has to have a place. Return `None` where it was refused."""
    try:
        return read(content)
    except DocumentError as error:
        problems = error.problems
    assert problems
    assert all(item.message and item.line and item.column for item in problems), problems
    return None


READERS: list[tuple[list[str], Callable[[bytes], object]]] = [
    ([path.read_text() for path in DOCUMENTS], lambda content: parse_document(content, "job.yaml").job),
    ([INVENTORY], lambda content: parse_inventory(content, "inventory.yaml")),
    (list(IMPORTED), lambda content: translate_file(content, "f").all_notes),
]


def try_mutants(count: int, seed: int, *, plans: float) -> dict[str, int]:
    """Read so many; plan a share of those that are jobs. Returns how many were read, refused, and planned."""
    chance, known = random.Random(seed), demo_inventory(Path("/nowhere"), ROOT, sys.executable)
    tally = {"read": 0, "refused": 0, "planned": 0}
    originals = [([yaml.safe_load(blank_comments(text)) for text in texts], read) for texts, read in READERS]
    for number in range(count):
        documents, read = originals[0 if number % 10 < 8 else number % 10 - 7]
        data = mutant(chance.choice(documents), chance)
        try:
            content = written(data, chance)
        except (yaml.YAMLError, UnicodeEncodeError):
            continue
        try:
            found = look(content, read)
        except Exception as error:
            raise AssertionError(f"seed {seed}, mutant {number}: {error!r}\n{content!r}") from error
        tally["read" if found is not None else "refused"] += 1
        if isinstance(found, Job) and chance.random() < plans:
            tally["planned"] += 1
            try:
                plan(found, known, {})
            except Exception as error:
                raise AssertionError(f"seed {seed}, mutant {number}, planned: {error!r}\n{content!r}") from error
    return tally


@pytest.mark.parametrize("seed", range(4))
def test_a_document_with_wrong_kinds_of_values_is_refused_with_places_or_planned(seed: int) -> None:
    tally = try_mutants(300, seed, plans=0.2)
    assert tally["refused"] > 100
    assert tally["planned"] > 2


@pytest.mark.parametrize(
    "value", ["{a: b}", "{a: {b: [c]}}", "[a]", "[]", "1.5", "true", "9" * 400, "2020-01-01", "1e999"]
)
def test_a_framework_that_is_no_text_is_refused_at_its_place(value: str) -> None:
    text = f"distributed_training:\n  name: x\n  framework: {value}\n  cluster: {{nodes: [{{id: a}}]}}\n"
    with pytest.raises(DocumentError) as caught:
        parse_job(text, "job.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (3, 14)


if __name__ == "__main__":
    print(try_mutants(int(sys.argv[1]), int(sys.argv[2]), plans=0.5))
