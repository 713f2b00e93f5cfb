"""Fetching over real SSH from isolated hosts: through links that break, of hostile names, onto a full disk."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dttui.fetching.target import PART
from tests.faults.proxy import Proxy
from tests.integration.headless import dttui, result_of, shell_job, start_dttui
from tests.lab.hosts import Lab
from tests.waiting import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300), pytest.mark.xdist_group("lab of bad links")]

SAVES = (
    'mkdir -p "$DTTUI_CHECKPOINT_DIR/step-$RANK" runs/a; '
    'head -c 4000000 /dev/urandom > "$DTTUI_CHECKPOINT_DIR/step-$RANK/model.pt"; '
    'head -c 300000 /dev/urandom > runs/a/events; : > runs/empty; echo "rank $RANK" > result.txt'
)
NAMES = {"checkpoints/step-{rank}/model.pt", "work/runs/a/events", "work/runs/empty", "work/result.txt"}


@pytest.fixture
def proxied(deployed: Lab, tmp_path: Path) -> Iterator[tuple[Proxy, Path]]:
    """A link to gpu1 that can be broken, and an inventory that leads to it through that."""
    gpu1 = deployed["gpu1"]
    with Proxy(gpu1.address, gpu1.ssh_port) as proxy:
        known_hosts = tmp_path / "known_hosts"
        known_hosts.write_text(f"{deployed.known_hosts.read_text()}[127.0.0.1]:{proxy.listens_at} {gpu1.host_key}\n")
        through = {"host": "127.0.0.1", "port": proxy.listens_at, "address": gpu1.address}
        yield proxy, deployed.inventory(tmp_path / "inventory.yaml", known_hosts=str(known_hosts), gpu1=through)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk of 2 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def run(tmp_path: Path, inventory: Path, command: str, nodes: dict[str, int]) -> dict[str, Any]:
    """Run a job to its end; return its document."""
    (tmp_path / "src").mkdir(exist_ok=True)
    (tmp_path / "src/sent.txt").write_text("sent")
    job = shell_job(tmp_path, nodes, command, workdir="src")
    done = dttui("--apply", job, "--inventory", inventory, "--output", "json")
    assert done.returncode == 0, done.stderr
    return result_of(done)


def in_rows(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in result_of(done)["files"]}


def assert_same(lab: Lab, rows: dict[str, dict[str, Any]], directory: Path) -> None:
    """Compare each file with the host's."""
    for path, row in rows.items():
        there = lab[row["node"]].run(["sha256sum", row["source"]]).stdout.split()[0].decode()
        assert hashlib.sha256((directory / path).read_bytes()).hexdigest() == there, path


def parts_of(directory: Path) -> list[Path]:
    return [path for path in directory.rglob(f"{PART}*") if path.is_file()]


def test_a_fetch_that_was_killed_goes_on_and_all_is_as_it_is_on_two_hosts(
    deployed: Lab, proxied: tuple[Proxy, Path], tmp_path: Path
) -> None:
    proxy, inventory = proxied
    job = run(tmp_path, inventory, SAVES, {"gpu1": 1, "gpu2": 1})
    told = {(item["node"], item["kind"], item["count"], item["size_bytes"]) for item in job["saved"]}
    assert {("gpu1", "checkpoints", 1, 4_000_000), ("gpu2", "work", 2, 300_000)} <= told
    listed = dttui("fetch", job["job_id"], "--list", "--output", "json")
    wanted = {f"gpu{rank + 1}/{name.format(rank=rank)}" for rank in (0, 1) for name in NAMES}
    assert set(in_rows(listed)) == wanted
    target = tmp_path / "got"
    proxy.down.bytes_per_s = 1_500_000
    first = start_dttui("fetch", job["job_id"], "-o", target)
    model = target / "gpu1/checkpoints/step-0/model.pt"
    wait_until(lambda: any(path.stat().st_size > 1_000_000 for path in parts_of(model.parent)), "a part", 60.0)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    (part,) = parts_of(model.parent)
    before = part.stat().st_size
    assert not model.exists()
    proxy.down.bytes_per_s = None
    done = dttui("fetch", job["job_id"], "-o", target, "--output", "json")
    assert done.returncode == 0, done.stderr
    rows = in_rows(done)
    assert set(rows) == wanted
    assert_same(deployed, rows, target)
    assert model.stat().st_size == 4_000_000 > before > 0
    assert parts_of(target) == []
    once_more = dttui("fetch", job["job_id"], "-o", target)
    assert once_more.returncode == 0
    assert "8 files, 8.6 MB" in once_more.stdout
    assert "8 were here already" in once_more.stdout


def test_a_link_that_is_reset_amid_a_fetch_is_made_anew(
    deployed: Lab, proxied: tuple[Proxy, Path], tmp_path: Path
) -> None:
    proxy, inventory = proxied
    job = run(tmp_path, inventory, SAVES, {"gpu1": 1})
    proxy.down.bytes_per_s = 1_000_000
    target = tmp_path / "got"
    fetching = start_dttui("fetch", job["job_id"], "-o", target, "--output", "json")
    wait_until(lambda: any(path.stat().st_size > 500_000 for path in parts_of(target)), "a part", 60.0)
    made = proxy.connections
    assert proxy.reset() > 0
    wait_until(lambda: proxy.connections > made, "another connection", 60.0)
    proxy.down.bytes_per_s = None
    output, errors = fetching.communicate(timeout=120)
    assert fetching.returncode == 0, errors
    rows = {row["path"]: row for row in json.loads(output)["files"]}
    assert set(rows) == {name.format(rank=0) for name in NAMES}, "one host alone needs no directory of its own"
    assert_same(deployed, rows, target)


HOSTILE = r"""
mkdir -p runs/deep; cd runs; echo good > good; echo deep > deep/file
ln -s /etc/passwd link; ln -s / root; ln -s . loop; mkfifo pipe
touch "$(printf 'esc\033[2Jape')" "$(printf 'new\nline')" "$(printf 'bad\377')"
mkdir "$(printf 'dir\033]0;x\007')"; echo inner > "$(printf 'dir\033]0;x\007')/inner"
"""


def test_links_pipes_and_hostile_names_of_a_script_stay_on_its_host(deployed: Lab, tmp_path: Path) -> None:
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    job = run(tmp_path, inventory, HOSTILE, {"gpu1": 1})
    target = tmp_path / "got"
    done = dttui("fetch", job["job_id"], "-o", target)
    assert done.returncode == 0, done.stderr
    found = {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}
    assert found == {"work/runs/good": "good\n", "work/runs/deep/file": "deep\n"}
    assert not any(path.is_symlink() for path in target.rglob("*"))
    assert "3 links, 1 device or pipe, 4 names that are no plain text" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    asked = dttui("fetch", job["job_id"], "runs/good", "/etc/hostname", "runs/link", "-o", tmp_path / "asked")
    assert asked.returncode == 0, asked.stderr
    named = {path.name: path.read_text() for path in (tmp_path / "asked").rglob("*") if path.is_file()}
    assert named.keys() == {"good", "hostname", "passwd"}
    assert named["hostname"] == "gpu1\n"
    nothing = dttui("fetch", job["job_id"], "runs/nothing", "-o", tmp_path / "nothing")
    assert (nothing.returncode, "there is no /" in nothing.stderr) == (2, True), nothing.stderr


def test_a_disk_that_is_full_here_is_said_before_and_amid_and_what_came_stays(
    deployed: Lab, tmp_path: Path, small_disk: Path
) -> None:
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    many = f"{SAVES}; mkdir small; for n in $(seq 700); do echo $n > small/$n; done"
    job = run(tmp_path, inventory, many, {"gpu1": 1})
    refused = dttui("fetch", job["job_id"], "-o", small_disk / "a")
    assert refused.returncode == 2
    assert "4.3 MB are to come" in refused.stderr
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []
    # Of a file of few bytes the disk takes a page: what was room for the bytes is none for the files.
    full = dttui("fetch", job["job_id"], "small", "-o", small_disk / "b", "--output", "json")
    assert (full.returncode, "no room left in" in full.stderr) == (2, True), full.stderr
    came = [path for path in (small_disk / "b/small").iterdir() if not path.name.startswith(PART)]
    assert 100 < len(came) < 700
    assert all(path.read_text() == f"{path.name}\n" for path in came if path.stat().st_size)
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    done = dttui("fetch", job["job_id"], "small", "-o", small_disk / "b", "--output", "json")
    assert done.returncode == 0, done.stderr
    outcomes = [row["outcome"] for row in in_rows(done).values()]
    assert (len(outcomes), outcomes.count("here") >= len(came)) == (700, True)
    assert {int(path.read_text()) for path in (small_disk / "b/small").iterdir()} == set(range(1, 701))


def test_another_file_of_the_name_is_left_alone_without_force(deployed: Lab, tmp_path: Path) -> None:
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    job = run(tmp_path, inventory, "echo theirs > result.txt; echo new > new.txt", {"gpu1": 1})
    target = tmp_path / "got"
    (target / "work").mkdir(parents=True)
    for mine in ("my own result", "longer!"):
        (target / "work/result.txt").write_text(mine)
        refused = dttui("fetch", job["job_id"], "-o", target)
        assert refused.returncode == 2
        assert "work/result.txt" in refused.stderr
        assert (target / "work/result.txt").read_text() == mine
    done = dttui("fetch", job["job_id"], "-o", target, "--force")
    assert done.returncode == 0, done.stderr
    found = {path.name: path.read_text() for path in (target / "work").iterdir()}
    assert found == {"result.txt": "theirs\n", "new.txt": "new\n"}
    assert os.stat(target / "work/result.txt").st_mode & 0o777 == 0o600


def test_what_a_job_leaves_is_kept_when_it_is_started_so_and_until_a_person_says_otherwise(
    deployed: Lab, tmp_path: Path
) -> None:
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/sent.txt").write_text("sent")
    job = shell_job(tmp_path, {"gpu1": 1, "gpu2": 1}, "echo theirs > result.txt", workdir="src")
    done = dttui("--apply", job, "--inventory", inventory, "--keep", "--output", "json")
    assert done.returncode == 0, done.stderr
    document = result_of(done)
    job_id = document["job_id"]
    assert [item["is_kept"] for item in document["saved"]] == [True, True]
    marker = str(Path(document["saved"][0]["path"]).parent / "keep")

    def marked() -> list[bool]:
        return [deployed[name].run(["test", "-e", marker], check=False).returncode == 0 for name in ("gpu1", "gpu2")]

    assert marked() == [True, True]
    told = dttui("status", job_id).stdout
    assert told.count("; kept\n") == 1, "both hosts have the same, told once"
    off = dttui("keep", job_id, "--off")
    assert (off.returncode, off.stdout.count("goes when its time has come: /")) == (0, 2), off.stderr
    assert marked() == [False, False]
    assert "may go from" in dttui("status", job_id).stdout
    again = dttui("keep", job_id, "--output", "json")
    assert [host["node"] for host in result_of(again)["hosts"]] == ["gpu1", "gpu2"]
    assert marked() == [True, True]
