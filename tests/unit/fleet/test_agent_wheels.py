"""The agent's own wheel, the pins, and where wheels come from. pip is real; its index is a directory."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import dtagent
import pytest

from dttui import locations
from dttui.errors import UsageError
from dttui.fleet.deployment.wheel_source import ARCHITECTURES, WheelSource
from dttui.fleet.deployment.wheels import Requirement, Wheel, build_agent_wheel, lock_text, pinned, zip_wheel

INFO = f"dtagent-{dtagent.__version__}.dist-info"


def make_wheel(directory: Path, project: str, tag: str = "py3-none-any", text: str = "") -> Requirement:
    """Write a wheel of one module and return what pins it."""
    directory.mkdir(exist_ok=True)
    name = project.replace("-", "_")
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n"
    files = {f"{name}.py": text.encode(), f"{info}/METADATA": metadata.encode()}
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()
    content = zip_wheel(files, f"{info}/RECORD")
    (directory / f"{name}-1.0-{tag}.whl").write_bytes(content)
    return Requirement(project, "1.0", frozenset({hashlib.sha256(content).hexdigest()}))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that stands for dtagent."""
    directory = tmp_path / "package"
    (directory / "payload" / "__pycache__").mkdir(parents=True)
    (directory / "__init__.py").write_text("x = 1\n")
    (directory / "payload" / "warm.py").write_text("y = 2\n")
    (directory / "payload" / "__pycache__" / "warm.cpython-311.pyc").write_bytes(b"cache")
    (directory / ".warm.py.swp").write_text("an editor's")
    return directory


@pytest.fixture
def agent(package: Path) -> Wheel:
    return build_agent_wheel((), package)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip can download from."""
    directory = tmp_path / "index"
    directory.mkdir()
    for name in os.environ:
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


def test_the_pins_cover_the_agent_and_both_architectures() -> None:
    pins = {item.project: item for item in pinned()}

    assert set(pins) == {"dacite", "nvidia-ml-py", "pip", "psutil"}
    assert len(pins["psutil"].hashes) == len(ARCHITECTURES)
    assert all(len(sha256) == 64 for item in pins.values() for sha256 in item.hashes)


def test_pins_read_back_as_they_are_written() -> None:
    assert pinned(lock_text(pinned())) == pinned()


def test_the_same_sources_give_the_same_wheel(package: Path) -> None:
    first = build_agent_wheel(pinned(), package)
    for path in package.rglob("*"):
        os.utime(path, (1, 1))

    assert build_agent_wheel(pinned(), package).content == first.content


def test_other_sources_give_another_wheel(package: Path) -> None:
    first = build_agent_wheel(pinned(), package)
    (package / "payload" / "warm.py").write_text("y = 3\n")

    assert build_agent_wheel(pinned(), package).sha256 != first.sha256


def test_the_wheel_holds_the_sources_and_nothing_beside_them(agent: Wheel, tmp_path: Path) -> None:
    path = tmp_path / agent.file_name
    path.write_bytes(agent.content)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()

    parts = [f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "entry_points.txt", "RECORD")]
    assert sorted(names) == sorted(["dtagent/__init__.py", "dtagent/payload/warm.py", *parts])


def test_the_real_wheel_has_the_whole_agent_and_needs_what_is_pinned(tmp_path: Path) -> None:
    wheel = build_agent_wheel(pinned())
    (tmp_path / wheel.file_name).write_bytes(wheel.content)
    with zipfile.ZipFile(tmp_path / wheel.file_name) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"{INFO}/METADATA").decode()

    assert {"dtagent/__main__.py", "dtagent/cli.py", "dtagent/protocol/rpc.py", "dtagent/py.typed"} <= names
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist")] == [
        f"Requires-Dist: {item}" for item in pinned() if item.project != "pip"
    ]


def test_pip_installs_the_wheel_and_its_command_with_hashes_required(agent: Wheel, tmp_path: Path) -> None:
    (tmp_path / agent.file_name).write_bytes(agent.content)
    lock = tmp_path / "requirements.txt"
    lock.write_text(lock_text([agent.requirement]))
    options = ["--isolated", "--no-index", f"--find-links={tmp_path}", "--require-hashes", "--no-deps", "-q"]
    target = tmp_path / "target"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, f"--prefix={target}", "--ignore-installed", "-r", lock],
        check=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull},
    )

    assert (target / "bin" / "dtagent").exists()
    assert [path.read_text() for path in target.rglob("warm.py")] == ["y = 2\n"]


async def test_a_wheelhouse_gives_the_wheels_of_its_architecture(agent: Wheel, tmp_path: Path) -> None:
    house = tmp_path / "house"
    intel = make_wheel(house, "psutil", "cp36-abi3-manylinux2014_x86_64", "intel = True")
    arm = make_wheel(house, "psutil", "cp36-abi3-manylinux2014_aarch64", "arm = True")
    both = Requirement("psutil", "1.0", intel.hashes | arm.hashes)

    source = WheelSource(house, (both, make_wheel(house, "nvidia-ml-py")), agent)
    wheels = await source.wheels("aarch64")

    assert [wheel.project for wheel in wheels] == ["dtagent", "psutil", "nvidia-ml-py"]
    assert wheels[1].requirement == arm


async def test_an_incomplete_wheelhouse_is_told_what_it_lacks_and_how_to_fill_it(agent: Wheel, tmp_path: Path) -> None:
    house = tmp_path / "house"
    there = make_wheel(house, "dacite")
    (house / "notes.whl").write_text("not named like a wheel")
    missing = Requirement("psutil", "7.2.2", frozenset({"0" * 64}))

    with pytest.raises(UsageError, match=r"lacks wheels for x86_64: psutil==7\.2\.2$") as caught:
        await WheelSource(house, (there, missing), agent).wheels("x86_64")

    assert "pip download" in caught.value.hint
    assert "--platform=manylinux2014_x86_64" in caught.value.hint
    assert caught.value.hint.endswith(f"-d {house} dacite==1.0 psutil==7.2.2")


async def test_a_wheel_of_another_content_is_not_taken(agent: Wheel, tmp_path: Path) -> None:
    house = tmp_path / "house"
    pin = make_wheel(house, "dacite")
    make_wheel(house, "dacite", text="changed = True")

    with pytest.raises(UsageError, match=r"dacite-1\.0-py3-none-any\.whl .* hash differs"):
        await WheelSource(house, (pin,), agent).wheels("x86_64")


async def test_what_pip_fetched_is_kept_and_not_fetched_again(agent: Wheel, index: Path) -> None:
    pins = (make_wheel(index, "dacite"), make_wheel(index, "psutil", "cp36-abi3-manylinux2014_x86_64"))
    fetched = await WheelSource(None, pins, agent).wheels("x86_64")
    cache = locations.wheel_cache("x86_64")
    shutil.rmtree(index)

    assert sorted(path.name for path in cache.iterdir()) == sorted(wheel.file_name for wheel in fetched[1:])
    assert await WheelSource(None, pins, agent).wheels("x86_64") == fetched


async def test_a_damaged_cache_is_fetched_again(agent: Wheel, index: Path) -> None:
    pin = make_wheel(index, "dacite")
    await WheelSource(None, (pin,), agent).wheels("x86_64")
    (kept,) = locations.wheel_cache("x86_64").iterdir()
    kept.write_bytes(b"half a whe")

    _agent, wheel = await WheelSource(None, (pin,), agent).wheels("x86_64")

    assert wheel.requirement == pin


async def test_pip_does_not_take_a_file_whose_hash_differs(agent: Wheel, index: Path) -> None:
    make_wheel(index, "dacite")
    pin = Requirement("dacite", "1.0", frozenset({"0" * 64}))

    with pytest.raises(UsageError, match="THESE PACKAGES DO NOT MATCH THE HASHES"):
        await WheelSource(None, (pin,), agent).wheels("x86_64")

    assert list(locations.wheel_cache("x86_64").iterdir()) == []


async def test_a_failure_to_fetch_names_the_wheelhouse_option(agent: Wheel, index: Path) -> None:
    source = WheelSource(None, (Requirement("dacite", "1.0", frozenset({"0" * 64})),), agent)

    with pytest.raises(UsageError, match=r"No matching distribution found for dacite==1\.0") as caught:
        await source.wheels("x86_64")

    assert "--wheelhouse DIR" in caught.value.hint


async def test_an_interpreter_without_pip_is_told_of_the_wheelhouse(
    agent: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    source = WheelSource(None, (Requirement("dacite", "1.0", frozenset({"0" * 64})),), agent)

    with pytest.raises(UsageError, match="has no pip") as caught:
        await source.wheels("x86_64")

    assert "--wheelhouse DIR" in caught.value.hint


def test_the_fingerprint_changes_with_every_part(agent: Wheel) -> None:
    pins = (Requirement("dacite", "1.0", frozenset({"0" * 64})),)
    source = WheelSource(None, pins, agent)
    other_agent = Wheel("dtagent", agent.version, agent.file_name, b"", "1" * 64)
    other_pins = (Requirement("dacite", "1.0", frozenset({"2" * 64})),)

    assert source.fingerprint("x86_64") == WheelSource(None, pins, agent).fingerprint("x86_64")
    fingerprints = {
        source.fingerprint("x86_64"),
        source.fingerprint("aarch64"),
        WheelSource(None, pins, other_agent).fingerprint("x86_64"),
        WheelSource(None, other_pins, agent).fingerprint("x86_64"),
    }
    assert len(fingerprints) == 4
