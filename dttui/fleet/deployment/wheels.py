"""What an agent is made of: pinned wheels of other projects, and dtagent's own, built from what is installed here.

Knows names, bytes and hashes; nothing of where wheels are fetched or put.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dtagent

_REQUIREMENTS_FILE = Path(__file__).with_name("requirements.txt")
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Requirement:
    """A pinned project."""

    project: str
    version: str
    hashes: frozenset[str]
    """SHA-256 of each wheel that will do, in hex."""

    def __str__(self) -> str:
        return f"{self.project}=={self.version}"


@dataclass(frozen=True)
class Wheel:
    """A wheel and its bytes."""

    project: str
    version: str
    file_name: str
    content: bytes = field(repr=False)
    sha256: str
    """Hash of the content, in hex."""

    @property
    def requirement(self) -> Requirement:
        """What asks for exactly this wheel."""
        return Requirement(self.project, self.version, frozenset({self.sha256}))


def pinned(text: str | None = None) -> tuple[Requirement, ...]:
    """Read requirements with hashes, those that ship with dttui by default."""
    lines = (_REQUIREMENTS_FILE.read_text() if text is None else text).replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        name, *options = line.split() or [""]
        if name and not name.startswith("#"):
            project, _equals, version = name.partition("==")
            found.append(Requirement(project, version, frozenset(item.rpartition(":")[2] for item in options)))
    return tuple(found)


def lock_text(requirements: Sequence[Requirement]) -> str:
    """Write requirements as pip reads them with --require-hashes."""
    lines = []
    for item in requirements:
        lines.append(" ".join([str(item), *(f"--hash=sha256:{sha256}" for sha256 in sorted(item.hashes))]) + "\n")
    return "".join(lines)


def build_agent_wheel(requirements: Sequence[Requirement], package: Path | None = None) -> Wheel:
    """Build dtagent's wheel from its sources. The same sources give the same bytes, on every machine.

    Args:
        requirements: what the agent is pinned to; pip among them is left out.
        package: directory of the package, the installed one by default.
    """
    version = dtagent.__version__
    needs = [f"Requires-Dist: {item}" for item in requirements if item.project != "pip"]
    metadata = ["Metadata-Version: 2.1", "Name: dtagent", f"Version: {version}", "Requires-Python: >=3.10", *needs, ""]
    tags = ["Wheel-Version: 1.0", "Generator: dttui", "Root-Is-Purelib: true", "Tag: py3-none-any", ""]
    info = f"dtagent-{version}.dist-info"
    files = {
        **{f"dtagent/{name}": content for name, content in _sources(package or Path(dtagent.__file__).parent)},
        f"{info}/METADATA": "\n".join(metadata).encode(),
        f"{info}/WHEEL": "\n".join(tags).encode(),
        f"{info}/entry_points.txt": b"[console_scripts]\ndtagent = dtagent.cli:main\n",
    }
    content = zip_wheel(files, f"{info}/RECORD")
    return Wheel(
        "dtagent", version, f"dtagent-{version}-py3-none-any.whl", content, hashlib.sha256(content).hexdigest()
    )


def zip_wheel(files: dict[str, bytes], record: str) -> bytes:
    """Return a wheel of these files and a RECORD of them. Stored, for zlib's output differs between machines."""
    rows = []
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}\n")
    rows.append(f"{record},,\n")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in (*sorted(files.items()), (record, "".join(rows).encode())):
            entry = zipfile.ZipInfo(name, _ZIP_EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def _sources(package: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package)
        if path.is_file() and path.suffix != ".pyc" and not any(part.startswith(".") for part in name.parts):
            yield name.as_posix(), path.read_bytes()
