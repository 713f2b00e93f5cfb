"""Where a deployment's wheels come from: a wheelhouse, the cache, or the package index by way of pip. Hashes decide."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dttui import locations
from dttui.errors import UsageError
from dttui.files import make_private
from dttui.fleet.deployment.wheels import Requirement, Wheel, build_agent_wheel, lock_text, pinned
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.transport.deadline import within
from dttui.variables import for_a_process

ARCHITECTURES = ("x86_64", "aarch64")
"""Machines that the pinned wheels are for, as `uname -m` names them."""
FETCH_TIMEOUT_S = 150.0


class WheelSource:
    """The wheels of a deployment. Fetches once for each architecture, however many hosts ask at a time.

    Args:
        wheelhouse: directory to take them from instead of the cache and the index.
        requirements: what to install beside the agent, the pinned ones by default.
        agent: the agent's own wheel, by default built from what is installed here.
    """

    def __init__(
        self,
        wheelhouse: Path | None = None,
        requirements: tuple[Requirement, ...] | None = None,
        agent: Wheel | None = None,
    ) -> None:
        self._wheelhouse = wheelhouse
        self._requirements = pinned() if requirements is None else requirements
        self._agent = agent or build_agent_wheel(self._requirements)
        self._lock = asyncio.Lock()
        self._outcomes: dict[tuple[str, tuple[Requirement, ...]], tuple[Wheel, ...] | UsageError] = {}

    def fingerprint(self, architecture: str) -> str:
        """Hash over everything that would be installed; needs no wheel but the agent's own."""
        pins = lock_text((self._agent.requirement, *self._requirements))
        return hashlib.sha256(f"{architecture}\n{pins}".encode()).hexdigest()

    async def wheels(self, architecture: str) -> tuple[Wheel, ...]:
        """Return all wheels of the agent for one of ARCHITECTURES, its own first.

        Raises:
            UsageError: as of `wheels_of`.
        """
        return (self._agent, *await self.wheels_of(self._requirements, architecture))

    async def wheels_of(self, requirements: tuple[Requirement, ...], architecture: str) -> tuple[Wheel, ...]:
        """Return the wheels that are pinned, for one of ARCHITECTURES.

        Raises:
            UsageError: the wheelhouse lacks some, or pip could not fetch them.
        """
        asked = (architecture, requirements)
        async with self._lock:
            if asked not in self._outcomes:
                try:
                    self._outcomes[asked] = tuple(await self._third_party(requirements, architecture))
                except UsageError as error:
                    self._outcomes[asked] = error
        outcome = self._outcomes[asked]
        if isinstance(outcome, UsageError):
            raise outcome
        return outcome

    async def _third_party(self, requirements: tuple[Requirement, ...], architecture: str) -> list[Wheel]:
        if self._wheelhouse is not None:
            return _collect(self._wheelhouse, requirements, architecture)
        cache = locations.wheel_cache(architecture)
        try:
            return _collect(cache, requirements, architecture)
        except UsageError:
            await _fetch(cache, requirements, architecture)
        return _collect(cache, requirements, architecture)


def _collect(directory: Path, requirements: tuple[Requirement, ...], architecture: str) -> list[Wheel]:
    found, problems = [], []
    for requirement in requirements:
        wheel, problem = _find(directory, requirement, architecture)
        if wheel is None:
            problems.append(problem)
        else:
            found.append(wheel)
    if problems:
        command = ["python3", *_download(architecture, directory), *map(str, requirements)]
        raise UsageError(
            _("{directory} lacks wheels for {architecture}: {problems}").format(
                directory=directory, architecture=architecture, problems="; ".join(problems)
            ),
            _("Fill it where there is a network: {command}").format(command=shlex.join(command)),
        )
    return found


async def _fetch(cache: Path, requirements: tuple[Requirement, ...], architecture: str) -> None:
    """Let pip of dttui's own interpreter download into the cache, with the person's own pip settings."""
    if importlib.util.find_spec("pip") is None:
        raise UsageError(
            _("{python} has no pip to fetch wheels with").format(python=sys.executable),
            _("Install pip there, or name a directory that has the wheels: --wheelhouse DIR"),
        )
    with staging_directory(cache) as staging:
        lock = staging / "requirements.txt"
        lock.write_text(lock_text(requirements))
        await run_pip([*_download(architecture, staging), "--require-hashes", "-r", str(lock)], staging)


@contextlib.contextmanager
def staging_directory(cache: Path) -> Iterator[Path]:
    """Give a directory whose wheels go into the cache at the end, each in one step."""
    try:
        make_private(cache)
        staging = Path(tempfile.mkdtemp(prefix=".new-", dir=cache))
    except OSError as error:
        raise UsageError(
            _("cannot write to {path}: {reason}").format(path=cache, reason=error.strerror),
            _("Set XDG_CACHE_HOME to a directory that you may write to."),
        ) from error
    try:
        yield staging
        for path in staging.glob("*.whl"):
            path.replace(cache / path.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _find(directory: Path, requirement: Requirement, architecture: str) -> tuple[Wheel | None, str]:
    """Return the wheel that a requirement pins, or `None` and what is wrong."""
    problem = str(requirement)
    for path in sorted(directory.glob("*.whl")):
        project, version, *_tags = [*path.stem.split("-"), ""]
        if re.sub(r"[-_.]+", "-", project).lower() != requirement.project or version != requirement.version:
            continue
        if not path.stem.endswith(("-any", f"_{architecture}")):
            continue
        try:
            content = path.read_bytes()
        except OSError as error:
            problem = _("{file} cannot be read: {reason}").format(file=path.name, reason=error.strerror)
            continue
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 in requirement.hashes:
            return Wheel(requirement.project, requirement.version, path.name, content, sha256), ""
        problem = _("{file} is not the file that dttui was tested with (its hash differs)").format(file=path.name)
    return None, problem


def _download(architecture: str, directory: Path) -> list[str]:
    # Newer pips take one platform to stand for all older ones; the others have to be told.
    platforms = [f"--platform={kind}_{architecture}" for kind in ("manylinux2014", "manylinux_2_17", "manylinux_2_28")]
    python = ["--python-version=3.10", "--implementation=cp", "--abi=abi3", "--abi=none"]
    return ["-m", "pip", "download", "--only-binary=:all:", "--no-deps", *platforms, *python, "-d", str(directory)]


async def run_pip(arguments: list[str], directory: Path) -> None:
    """Run pip by this interpreter in a directory.

    Raises:
        UsageError: it fails, or takes longer than it may.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        "--disable-pip-version-check",
        "--no-input",
        "--no-color",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        # With -m a file of the working directory called pip.py would come first.
        cwd=directory,
        env=for_a_process(),
        umask=0o077,
    )
    try:
        output, _none = await within(process.communicate(), FETCH_TIMEOUT_S)
    except asyncio.TimeoutError as error:
        raise UsageError(
            _("pip did not fetch the wheels within {seconds:g} s").format(seconds=FETCH_TIMEOUT_S),
            _("Look at the network, or name a directory that has the wheels: --wheelhouse DIR"),
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = clean(output.decode(errors="replace")).strip().splitlines()
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise UsageError(
            _("pip could not fetch the wheels: {output}").format(output=" ".join(errors[-3:])),
            _("Look at the network and pip's settings, or name a directory that has the wheels: --wheelhouse DIR"),
        )
