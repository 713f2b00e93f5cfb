"""Job files as people get them wrong: what each is told, with its place, in English and in Chinese."""

from __future__ import annotations

import re

import pytest
import yaml
from rich.cells import cell_len

from dttui.i18n import set_language
from dttui.spec import DocumentError, Problem, parse_document, yaml_composer
from dttui.spec.entry_points import OWN_FRAMEWORKS
from dttui.spec.problems import format_path

pytestmark = pytest.mark.usefixtures("english")

HEAD = "distributed_training:\n  name: a\n"
BYTES = "expected a number with a unit (B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB), such as 16GB"
FRAMEWORKS = "expected one of {}".format(" or ".join(", ".join(OWN_FRAMEWORKS).rsplit(", ", 1)))
STRATEGIES = "expected one of data_parallel, model_parallel, pipeline_parallel or hybrid"

NO_YAML = [
    ("  run:\n\tscript: a.py\n", "4:1", "a tab where spaces must be; indent with spaces, not with tabs"),
    (
        "  run:\n    script: a.py\n   args: [x]\n",
        "5:4",
        "this does not go on with what began in line 2; "
        "indent it like its neighbours, or put the whole value in quotes",
    ),
    ("  run: {script: a.py\n  dataset: none\n", "4:10", "expected a comma or } for what was opened in line 3"),
    ("  run: {script: a, args: [--x: 1}}\n", "3:33", "expected a comma or ] for what was opened in line 3"),
    ("  run:\n    script: 'a.py\n    args: []\n", "4:13", "a quote is not closed"),
    (
        "  run:\n    script: a.py: main\n",
        "4:17",
        "a colon cannot stand here; put text that holds a colon in quotes, or indent the line like its neighbours",
    ),
    ("  version: @v1\n", "3:12", "text cannot begin with @ where it has no quotes; put it in quotes"),
    ("  version: `v1`\n", "3:12", "text cannot begin with ` where it has no quotes; put it in quotes"),
    ("  run: {script: a, args: [%d]}\n", "3:27", "text cannot begin with % where it has no quotes; put it in quotes"),
    ("  run: {script: a}\n  dataset\n", "4:3", "expected a colon and a blank after the key"),
    ("  run: - a\n", "3:8", "a list cannot begin here; write it on lines of its own, or in [ ]"),
    (
        '  run: {script: "C:\\q"}\n',
        None,
        "what follows the backslash is no character; write two backslashes for one",
    ),
]
MISTAKES = [
    ("  name2: *job\n", '3:10 no anchor "job" before this; put it in quotes if it is text'),
    ("  strategy: {type: data-parallel}\n", f'3:20 {STRATEGIES}, found "data-parallel"; did you mean "data_parallel"?'),
    ("  strategy: {type: DATA_PARALLEL}\n", f'3:20 {STRATEGIES}, found "DATA_PARALLEL"; did you mean "data_parallel"?'),
    ("  strategy: {type: 数据并行}\n", f'3:20 {STRATEGIES}, found "数据并行"; did you mean "data_parallel"?'),
    ("  strategy: {type: ddp}\n", f'3:20 {STRATEGIES}, found "ddp"; did you mean "data_parallel"?'),
    ("  strategy: {tp: 8}\n", '3:14 strategy.tp: unknown key; did you mean "tensor_parallel_size"?'),
    ("  framework: PyTorch DDP\n", f'3:14 {FRAMEWORKS}, found "PyTorch DDP"; did you mean "pytorch-ddp"?'),
    ("  framework: torch\n", f'3:14 {FRAMEWORKS}, found "torch"; did you mean "pytorch-ddp"?'),
    *(
        (
            f"  framework: {name}\n",
            "3:14 Megatron-LM + DeepSpeed is no framework of its own here. Write framework: megatron-lm, which splits "
            "tensors and layers (tensor_parallel_size, pipeline_parallel_size), with strategy.zero_stage: 1 for ZeRO's "
            "sharded optimizer; or deepspeed for its stages 2 and 3 and for offloading",
        )
        for name in ("megatron-deepspeed", "Megatron-LM + DeepSpeed", "deepspeed_megatron_lm")
    ),
    ("  framework: 3\n", f"3:14 {FRAMEWORKS}, found 3"),
    (
        "  communication: {protocol: nccl}\n",
        '3:29 expected one of NCCL, MPI, gRPC or custom, found "nccl"; did you mean "NCCL"?',
    ),
    (
        "  communication: {allreduce: {buffer_size: 1MB}}\n",
        '3:44 expected a whole number, found "1MB"; write buffer_size: 1000000',
    ),
    ("  resources: {gpu: {memory: 80}}\n", f'3:29 {BYTES}, found 80; did you mean "80GB"?'),
    ("  resources: {gpu: {memory: 80G}}\n", f'3:29 {BYTES}, found "80G"; did you mean "80GB"?'),
    ("  resources: {gpu: {memory: -1GB}}\n", f'3:29 {BYTES}, found "-1GB"'),
    ("  resources: {gpu: {memory: [80GB]}}\n", f"3:29 {BYTES}, found a list"),
    ("  resources: {gpu: {memory: true}}\n", f"3:29 {BYTES}, found true"),
    (
        "  resources: {network: {bandwidth: 100G}}\n",
        "3:36 expected a number with a unit (bps, Kbps, Mbps, Gbps, Tbps), such as 100Gbps, "
        'found "100G"; did you mean "100Gbps"?',
    ),
    (
        "  resources: {network: {latency: 5}}\n",
        '3:34 expected a number with a unit (ns, us, µs, ms, s, min, h), such as 5ms, found 5; did you mean "5ms"?',
    ),
    ("  resources: {gpu: {count: all}}\n", '3:28 expected a whole number, found "all"'),
    ("  resources: {gpu: {count: 8.0}}\n", "3:28 expected a whole number, found 8.0; write count: 8"),
    ("  resources: {gpu: {count: 2000}}\n", "3:28 expected a number of at most 1024, found 2000"),
    ("  model: {vocab_size: 50K}\n", '3:23 expected a whole number, found "50K"; write vocab_size: 50000'),
    (
        "  model: {precision: float16}\n",
        '3:22 expected one of fp32, tf32, fp16, bf16 or fp8, found "float16"; did you mean "fp16"?',
    ),
    (
        "  monitoring: {visualization: {enabled: on}}\n",
        '3:41 expected true or false, found "on"; write enabled: true',
    ),
    ("  训练: {lr: 1}\n", '3:3 训练: unknown key; did you mean "settings"?'),
    (
        "  epochs: 3\n",
        "3:3 epochs: unknown key; known keys: cluster, communication, dataset, framework, framework_options, model, "
        "monitoring, name, recovery, require_process_group, resources, run, settings, strategy, version; "
        "keys of the script's own go below settings",
    ),
    ("  cluster: {nodes: [{hostname: a}]}\n", '3:22 cluster.nodes[0].hostname: unknown key; did you mean "id"?'),
    (
        "  cluster: {nodes: [{id: a, role: 主节点}]}\n",
        '3:35 expected one of master, worker or parameter_server, found "主节点"; did you mean "master"?',
    ),
    (
        "  cluster: {nodes: [{id: gpu1}], topology: {groups: [{name: r, nodes: [gpu2]}]}}\n",
        '3:72 "gpu2" is no node of the job; did you mean "gpu1"?',
    ),
    (
        "  cluster: {nodes: [{id: a}], topology: {groups: [{name: r, nodes: [a]}, {name: s, nodes: [a]}]}}\n",
        '3:92 node "a" is in the group "r" already',
    ),
    (
        "  run:\n    script:a.py\n",
        '4:5 expected a mapping of keys to values, found "script:a.py"; write run: {script: a.py}',
    ),
    (
        "  run: python3 a.py --lr 1\n",
        '3:8 expected a mapping of keys to values, found "python3 a.py --lr 1"; '
        "write run: {script: a.py, args: [--lr, '1']}",
    ),
    (
        "  run: {script: a, secrets: {TOKEN: abc}}\n",
        "3:29 expected a list, found a mapping; write secrets: [TOKEN]",
    ),
    ("  run:\n  script: a.py\n", "4:3 script: unknown key; it belongs to distributed_training.run"),
    ("  settings: {lr: .nan}\n", "3:18 expected a number that JSON can hold"),
    ("  settings: [lr]\n", "3:13 expected a mapping of keys to values, found a list"),
    ("schema: v1\n", '3:9 expected dttui/v1, found "v1"'),
]
REQUESTS = [
    ('{"taskName": "x" "launchMode": "existing"}', "1:18 not valid JSON: expected a comma or } for what was opened in"),
    ('{"taskName": "x", }}', "1:20 not valid JSON: something is left over behind the end of the document"),
    ('{"taskName": "x", "taskName": "y"}', "1:19 this key is here twice; the first is in line 1"),
    ('{"taskName": "x", "modelId": NaN}', "1:30 NaN is no value of JSON"),
    ('{"taskName": "\\ud83d"}', "half of a pair of surrogates, which is no character"),
    (
        '{"taskName": "x", "distributedConfig": {"nodeIds": "env-001"}}',
        '1:52 expected a list, found "env-001"; write nodeIds: [env-001]',
    ),
    (
        '{"taskName": "x", "distributedConfig": {"enabled": "true"}}',
        '1:52 expected true or false, found "true"; write enabled: true',
    ),
]


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of PyYAML's parsers, which say the same thing in different words."""
    monkeypatch.setattr(yaml_composer, "_PARSER", getattr(yaml, request.param))


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(DocumentError) as caught:
        parse_document(text, "job.yaml")
    return caught.value.problems


def only(text: str) -> Problem:
    (problem,) = problems(text)
    return problem


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(("body", "place", "words"), NO_YAML)
def test_what_is_no_yaml_is_told_in_plain_words(body: str, place: str | None, words: str) -> None:
    problem = only(HEAD + body)
    assert str(problem).partition(": ")[2] == f"not valid YAML: {words}"
    assert place is None or f"{problem.line}:{problem.column}" == place


@pytest.mark.parametrize(("body", "told"), MISTAKES)
def test_a_mistake_is_told_with_what_was_meant(body: str, told: str) -> None:
    problem = only(HEAD + body)
    key = format_path(problem.path[1:])
    said = str(problem).partition(": ")[2].removeprefix("distributed_training.")
    place, _blank, words = told.partition(" ")
    assert f"{problem.line}:{problem.column}" == place
    assert words in (said, said.removeprefix(f"{key}: "), said.removeprefix("schema: "))


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(("text", "told"), REQUESTS)
def test_a_mistake_in_a_request_is_told_too(text: str, told: str) -> None:
    problem = only(text)
    assert told in f"{problem.line}:{problem.column} {problem.message}; {problem.hint}"


@pytest.mark.usefixtures("parser")
def test_everything_is_told_in_chinese_as_well() -> None:
    set_language("zh")
    bodies = [row[0] for row in NO_YAML] + [row[0] for row in MISTAKES]
    texts = [HEAD + body for body in bodies] + [row[0] for row in REQUESTS]
    for text in texts:
        said = only(text)
        assert re.search("[\u4e00-\u9fff]", said.message), said
        assert not re.search("expected|found|not valid|did you mean|write |unknown", str(said)), said


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("begin", ["", "\ufeff"])
def test_the_caret_is_under_the_place_with_wide_text_byte_order_mark_and_other_line_ends(
    newline: str, begin: str
) -> None:
    text = f'{begin}{HEAD}  cluster:\n    nodes:\n    -   {{id: "训练节点", roel: worker}}\n'.replace("\n", newline)
    problem = only(text)
    assert (problem.line, problem.column) == (5, 22)
    _said, line, caret = problem.render().split("\n")
    assert cell_len(line[: line.index("roel")]) == caret.index("^")


def test_the_caret_is_under_the_place_behind_tabs() -> None:
    problem = only('{\n\t"taskName": "x",\n\t"distributedConfig":\t{"nodeId": []}\n}\n')
    assert (problem.line, problem.column) == (3, 24)
    _said, line, caret = problem.render().split("\n")
    assert line.index('"nodeId"') == caret.index("^")


def test_hundreds_of_mistakes_are_all_data_and_the_message_stays_readable() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_document(HEAD + "".join(f"  k{index}: 1\n" for index in range(500)), "job.yaml")
    assert len(caught.value.problems) == 500
    assert str(caught.value).splitlines()[-1] == "mistakes not shown here: 400"


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("distributed_training：\n  name: a\n", (1, 21), 'a full-width colon: write ":" and a blank'),
        ("distributed_training:\n  name：x\n  cluster: {}\n", (2, 7), 'a full-width colon: write ":" and a blank'),
        (HEAD + "  framework：command\n  run:\n    script: a\n", (3, 12), 'a full-width colon: write ":" and a blank'),
        (HEAD + "  model： {size: 7B}\n", (3, 3), 'a full-width colon: write ":" and a blank'),
        (HEAD + "  run: {script：a.py}\n", (3, 9), 'a full-width colon: write ":" and a blank'),
        (HEAD + "  settings: {a: b，c: d}\n", (3, 18), 'a full-width comma: write ","'),
    ],
)
def test_full_width_punctuation_is_named_at_its_own_place(text: str, place: tuple[int, int], told: str) -> None:
    problem = only(text)
    assert (problem.line, problem.column) == place
    assert told in problem.hint


def test_full_width_punctuation_above_a_mistake_of_another_kind_is_not_blamed() -> None:
    problem = only(
        HEAD + "  settings:\n    a: |\n      注意：x\n      note：x\n  run:\n    script: a.py\n   args: [x]\n"
    )
    assert (problem.line, "full-width" in str(problem)) == (9, False)


def test_an_item_of_a_list_that_a_full_width_comma_does_not_part_gets_a_note() -> None:
    found = parse_document(HEAD + '  run: {script: a.py, args: [a，b, "c，d", "，"]}\n', "job.yaml").notes
    assert [(note.code, str(note.place)) for note in found] == [("full-width-comma", "job.yaml:3:30")]


def test_nodes_at_the_top_belong_to_the_cluster() -> None:
    assert only(HEAD + "  nodes: [a]\n").hint == "it belongs to distributed_training.cluster"


def test_a_dead_node_is_a_lost_one() -> None:
    assert 'did you mean "lost"?' in str(only(HEAD + "  monitoring: {alerts: [{state: node dead}]}\n"))


def test_a_character_that_is_not_printable_is_named() -> None:
    assert "U+200D is none" in str(only("distributed_training:\n  name: 👩\u200d🔬\n"))
