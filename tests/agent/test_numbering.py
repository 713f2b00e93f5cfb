"""How the ranks of an elastic job tell where torchrun has put them, and the agent reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from dtagent import payload
from dtagent.attempts import failure_records, numbering
from dtagent.daemon.attempt_watcher import look_at
from dtagent.locations import AttemptFiles
from dtagent.protocol.meeting import Numbering

RUNNER = Path(payload.__file__).parent / "rank.py"


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    files = AttemptFiles(tmp_path)
    for directory in (files.logs, files.ranks, files.failures):
        directory.mkdir()
    return files


def run(files: AttemptFiles, first: int, count: int, *, restarts: int, port: int, code: str = "") -> None:
    """Run all ranks of the node at once, as torchrun does."""

    def rank(local_rank: int) -> None:
        environment = {
            **os.environ,
            "DTTUI_LOGS": str(files.logs),
            "RANK": str(first + local_rank),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(count),
            "WORLD_SIZE": "9",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_MAX_RESTARTS": "3",
            "TORCHELASTIC_RESTART_COUNT": str(restarts),
        }
        script = files.directory / "script.py"
        subprocess.run([sys.executable, str(RUNNER), str(script)], env=environment, timeout=60, check=False)

    (files.directory / "script.py").write_text(code)
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(rank, range(count)))


def test_ranks_that_are_started_again_take_the_place_of_their_earlier_selves(files: AttemptFiles) -> None:
    run(files, 4, 4, restarts=0, port=4000, code="raise SystemExit(3)")
    assert numbering.read(files) == Numbering([4, 5, 6, 7], 9, 0, 4000)
    assert [failure.rank for failure in failure_records.read(files)] == [4, 5, 6, 7]
    before = look_at(files).stamp
    run(files, 2, 4, restarts=1, port=4001)
    assert numbering.read(files) == Numbering([2, 3, 4, 5], 9, 1, 4001)
    assert sorted(path.name for path in files.ranks.glob("[0-9]*.json") if "ended" not in path.name) == [
        name for rank in (2, 3, 4, 5) for name in (f"{rank}.group.json", f"{rank}.json")
    ]
    assert failure_records.read(files) == []
    assert sorted(int(item.name) for item in failure_records.clean_ends(files, ())) == [2, 3, 4, 5]
    assert look_at(files).stamp != before


@pytest.mark.parametrize(
    "records",
    [
        {},
        {0: {"pid": 1, "start_time": 1}},
        {0: {"local_rank": 1, "local_world_size": 1, "world_size": 2, "restarts": 0, "port": 1}},
        {
            0: {"local_rank": 0, "local_world_size": 2, "world_size": 2, "restarts": 0, "port": 1},
            1: {"local_rank": 1, "local_world_size": 2, "world_size": 2, "restarts": 1, "port": 2},
        },
        {
            rank: {"local_rank": rank, "local_world_size": 4, "world_size": 4, "restarts": 0, "port": 1}
            for rank in (0, 1)
        },
        {0: {"local_rank": 0, "world_size": 1, "restarts": 0, "port": 1}},
        {5: {"local_rank": 0, "local_world_size": 1, "world_size": 2, "restarts": 0, "port": 1}},
        {0: {"local_rank": "0", "local_world_size": 1, "world_size": 2, "restarts": 0, "port": 1}},
    ],
    ids=[
        "none",
        "as planned",
        "not all yet",
        "of two rounds",
        "the first two of four",
        "no word of how many",
        "no such rank",
        "not a number",
    ],
)
def test_records_that_make_no_numbering_are_none(files: AttemptFiles, records: dict[int, dict[str, object]]) -> None:
    for rank, body in records.items():
        (files.ranks / f"{rank}.json").write_text(json.dumps(body))
    assert numbering.read(files) is None
