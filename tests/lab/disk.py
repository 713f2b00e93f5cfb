"""The files of a host: an overlay over the machine's own, whose upper layer is the host's. Runs inside the host."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from tests.lab import kernel
from tests.lab.blueprint import Blueprint, File, Masks, Tree

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}


def mount_root(blueprint: Blueprint) -> Path:
    """Mount the host's root, fill it on the first boot, and return where it is."""
    disk = Path(blueprint.disk)
    upper, work, root = disk / "upper", disk / "work", disk / "root"
    first_boot = not upper.exists()
    if first_boot:
        upper.mkdir(mode=0o755)
        work.mkdir()
        root.mkdir()
        mask(upper, Path("/"), blueprint.masks)
    # index=off: the overlay of the boot before may still be going away.
    kernel.mount("overlay", root, "overlay", options=f"lowerdir=/,upperdir={upper},workdir={work},index=off")
    if first_boot:
        for file in blueprint.files:
            _write(root, file)
    _mount_system(root)
    for number, tree in enumerate(blueprint.trees):
        _mount_tree(root, tree, disk / f"layer{number}")
    boot_id = root / "run/boot_id"
    boot_id.write_text(blueprint.boot_id + "\n")
    kernel.bind_read_only(boot_id, root / "proc/sys/kernel/random/boot_id")
    return root


def mask(layer: Path, lower: Path, masks: Masks) -> None:
    """Write into an overlay's layer what makes paths of the layer below it empty or absent."""
    covered: list[Path] = []
    wanted = [(Path(path), True) for path in masks.emptied] + [(Path(path), False) for path in masks.hidden]
    for path, emptied in sorted(wanted):
        relative = path.relative_to("/") if path.is_absolute() else path
        if any(above in relative.parents or above == relative for above in covered):
            continue
        covered.append(relative)
        original, shadow = lower / relative, layer / relative
        if not os.path.lexists(original):
            continue
        _shadow_parents(layer, lower, relative)
        if emptied:
            shadow.mkdir(mode=0o755)
            if original.is_dir():
                shutil.copystat(original, shadow)
            os.setxattr(shadow, "trusted.overlay.opaque", b"y")
        else:
            os.mknod(shadow, stat.S_IFCHR, os.makedev(0, 0))


def _shadow_parents(layer: Path, lower: Path, relative: Path) -> None:
    for parent in reversed(relative.parents[:-1]):
        shadow, original = layer / parent, lower / parent
        if not shadow.exists():
            shadow.mkdir()
            shutil.copystat(original, shadow)
            owner = original.stat()
            os.chown(shadow, owner.st_uid, owner.st_gid)


def _write(root: Path, file: File) -> None:
    path = root / file.path.lstrip("/")
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=file.mode)
    path.chmod(file.mode)
    path.write_text(file.text)


def _mount_system(root: Path) -> None:
    for name in ("proc", "sys", "dev", "run", "tmp"):
        (root / name).mkdir(exist_ok=True)
    kernel.mount("proc", root / "proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV)
    kernel.mount("sysfs", root / "sys", "sysfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_RDONLY)
    kernel.mount("tmpfs", root / "run", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    kernel.mount("tmpfs", root / "tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    kernel.mount("tmpfs", root / "dev", "tmpfs", kernel.MS_NOSUID, "mode=755")
    for name in _DEVICES:
        original = os.stat(f"/dev/{name}")
        os.mknod(root / "dev" / name, original.st_mode, original.st_rdev)
        (root / "dev" / name).chmod(stat.S_IMODE(original.st_mode))
    for name, target in _DEVICE_LINKS.items():
        (root / "dev" / name).symlink_to(target)
    for name in ("pts", "shm", "mqueue"):
        (root / "dev" / name).mkdir()
    kernel.mount("devpts", root / "dev/pts", "devpts", kernel.MS_NOSUID, "newinstance,ptmxmode=0666,mode=620,gid=5")
    kernel.mount("tmpfs", root / "dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    kernel.mount("mqueue", root / "dev/mqueue", "mqueue", kernel.MS_NOSUID | kernel.MS_NODEV)


def _mount_tree(root: Path, tree: Tree, layer: Path) -> None:
    target = root / tree.target.lstrip("/")
    target.mkdir(parents=True, exist_ok=True)
    if not (tree.hidden or tree.links):
        kernel.bind_read_only(tree.source, target)
        return
    if not layer.exists():
        layer.mkdir()
        source = Path(tree.source)
        linked = tuple(path for path, _ in tree.links)
        mask(layer, source, Masks(hidden=tuple(path for path in tree.hidden if path not in linked)))
        for path, points_to in tree.links:
            _shadow_parents(layer, source, Path(path))
            (layer / path).symlink_to(points_to)
    kernel.mount("overlay", target, "overlay", kernel.MS_RDONLY, f"lowerdir={layer}:{tree.source}")
