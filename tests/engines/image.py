"""An image for containers of tests, made of programs of this host, since none can be fetched."""

from __future__ import annotations

import os
import resource
import subprocess
import tarfile
from pathlib import Path

NAME = "localhost/dttui-test:1"
PROGRAMS = ("/bin/sh", "/bin/sleep", "/bin/cat", "/bin/mkdir", "/usr/bin/id", "/usr/bin/env")


def write_image(path: Path) -> None:
    """Write the files of an image: some programs with the libraries that they load."""
    told = subprocess.run(["ldd", *PROGRAMS], capture_output=True, text=True, check=True).stdout
    wanted = {*PROGRAMS, *(word for word in told.split() if word.startswith("/lib") and not word.endswith(":"))}
    with tarfile.open(path, "w", dereference=True) as archive:
        folders = {str(parent) for name in wanted for parent in Path(name.lstrip("/")).parents}
        for folder in sorted({*folders, "proc", "sys", "dev", "tmp", "etc", "root", "var", "var/tmp"}):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name in ("passwd", "group", "hosts", "resolv.conf", "localtime"):
            archive.addfile(tarfile.TarInfo(f"etc/{name}"))
        for name in sorted(wanted):
            archive.add(os.path.realpath(name), name.lstrip("/"))


def limits() -> tuple[str, ...]:
    """Return limits that may be set without CAP_SYS_RESOURCE, which podman's own may not."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return (f"--ulimit=nofile={files}:{files}", "--ulimit=nproc=4096:4096")
