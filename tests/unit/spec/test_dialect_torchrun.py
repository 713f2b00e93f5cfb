"""`dttui import`: command lines of torchrun, as torchrun itself reads them."""

from __future__ import annotations

from typing import Any

import pytest

from dttui.spec import DocumentError
from dttui.spec.dialects.commands.torchrun_options import FLAGS, SHORT, VALUED
from dttui.spec.importing import merge
from tests.argument_parsers import options_of
from tests.unit.spec.imported import command, data, keys


def test_a_command_line_of_torchrun() -> None:
    imported = merge(
        [command("torchrun --nnodes 2 --nproc-per-node 8 --master-addr gpu1 --master-port 1 train.py --lr 1e-4 -- x")],
        "job",
    )
    assert data(imported) == {
        "name": "train",
        "framework": "pytorch-ddp",
        "run": {"script": "train.py", "args": ["--lr", "1e-4", "--", "x"]},
        "resources": {"gpu": {"count": 8}},
    }
    assert set(keys(imported)) == {"--nnodes", "--master-addr", "--master-port"}
    columns = {note.subject: note.place.column for note in imported.notes if note.place is not None}
    assert columns == {"--nnodes": 10, "--master-addr": 40, "--master-port": 59}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun --nproc_per_node=4 a.py", {"run": {"script": "a.py"}, "resources": {"gpu": {"count": 4}}}),
        ("torchrun --nproc-per-node gpu dir/a.py", {"run": {"script": "dir/a.py"}}),
        ("torchrun a.py", {"run": {"script": "a.py"}, "resources": {"gpu": {"count": 1}}}),
        (
            "torchrun --standalone --nproc-per-n 2 -m pkg.a x",
            {"run": {"module": "pkg.a", "args": ["x"]}, "resources": {"gpu": {"count": 2}}},
        ),
        (
            "NCCL_DEBUG=INFO /opt/bin/python3 -m torch.distributed.run -r3 --nproc-per-node auto a.py",
            {"run": {"script": "a.py", "python": "/opt/bin/python3", "env": {"NCCL_DEBUG": "INFO"}}},
        ),
        (
            "python -u -m torch.distributed.launch --use_env --nproc_per_node 2 a.py",
            {"run": {"script": "a.py"}, "resources": {"gpu": {"count": 2}}},
        ),
        (
            "torchrun --no-python --nproc-per-node 2 a 1",
            {"name": "a", "framework": "command", "run": {"command": ["a", "1"]}, "resources": {"gpu": {"count": 2}}},
        ),
        (
            "torchrun --max-restarts 3 --nnodes 2:4 --nproc-per-node cpu --no-python a",
            {
                "name": "a",
                "framework": "command",
                "run": {"command": ["a"]},
                "resources": {"gpu": {"count": 0}},
                "recovery": {"max_restarts": 3, "min_nodes": 2},
            },
        ),
        (
            "torchrun --max-restarts 0 --nnodes 2:4 --nproc-per-node cpu a.py",
            {
                "run": {"script": "a.py"},
                "resources": {"gpu": {"count": 0}},
                "framework_options": {"elastic": {"min_nodes": 2}},
                "recovery": {"max_restarts": 0},
            },
        ),
        (
            "torchrun --max-restarts 3 --nnodes 2:4 --nproc-per-node cpu a.py",
            {
                "run": {"script": "a.py"},
                "resources": {"gpu": {"count": 0}},
                "framework_options": {"elastic": {"max_restarts": 3, "min_nodes": 2}},
            },
        ),
    ],
)
def test_spellings_of_torchrun(line: str, expected: dict[str, Any]) -> None:
    assert data(merge([command(line)], "job")) == {"name": "a", "framework": "pytorch-ddp", **expected}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "1:1: expected torchrun, found nothing"),
        ("acelerate launch a.py", '1:1: expected torchrun, found "acelerate"'),
        ("torchrun --nnodes 2", "1:21: there is no script"),
        ("torchrun --nnodes", "1:10: --nnodes lacks its value"),
        ("torchrun --nnode-count 2 a.py", "1:10: torchrun has no option --nnode-count"),
        ("torchrun --rdzv c10d a.py", "1:10: torchrun has no option --rdzv"),
        ("torchrun --standalone=1 a.py", "1:10: --standalone takes no value"),
        ("torchrun --nnodes 4:2 a.py", '1:19: --nnodes: expected a number of nodes, N or MIN:MAX, found "4:2"'),
        ("torchrun --nproc-per-node 0 a.py", "1:27: --nproc-per-node: expected a number of processes"),
        ("torchrun --max-restarts many a.py", '1:25: --max-restarts: expected a whole number, found "many"'),
        ("torchrun ' ' x", "program: must not be blank"),
        ("torchrun -m a/b.py", "program: expected a dotted module name"),
    ],
)
def test_mistakes_in_a_command_line_have_their_places(line: str, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        merge([command(line)], "job")
    assert words in str(caught.value)


@pytest.mark.torch
def test_the_options_are_those_of_torchrun_itself() -> None:
    from torch.distributed.run import get_args_parser

    theirs = options_of(get_args_parser())
    dashed = {text.replace("_", "-") for text in theirs if text.startswith("--")}
    assert dashed <= {*FLAGS, *VALUED}
    assert {text for text in theirs if not text.startswith("--")} == set(SHORT)
    for option in dashed:
        takes_value = theirs[option].nargs != 0
        assert takes_value == (option in VALUED), option
