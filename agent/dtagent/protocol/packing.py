"""How what many hosts are sent alike is made shorter on its way: by what of the standard library both sides have."""

from __future__ import annotations

import zlib

try:
    import lzma
except ImportError:  # Pythons that were built without liblzma.
    lzma = None  # type: ignore[assignment]  # it is asked for below

_DAMAGED = (zlib.error, EOFError, *((lzma.LZMAError,) if lzma is not None else ()))
LZMA, ZLIB = "lzma", "zlib"
PACKINGS = (LZMA, ZLIB) if lzma is not None else (ZLIB,)
"""What this side can unpack, the best first."""
MAX_UNPACKED_BYTES = 32 * 1024 * 1024
MAX_MEMORY_BYTES = 64 * 1024 * 1024
"""Of unpacking itself."""


def pack(packing: str, data: bytes) -> bytes:
    """Return the data shorter, by one of `PACKINGS`."""
    return lzma.compress(data, preset=6) if packing == LZMA else zlib.compress(data, 9)


def unpack(packing: str, data: bytes) -> bytes:
    """Return what was packed. Raises ValueError where it is damaged, unpacks to too much, or was packed otherwise."""
    if packing not in PACKINGS:
        raise ValueError("it was packed in a way that is not known here")
    try:
        if packing == LZMA:
            xz = lzma.LZMADecompressor(memlimit=MAX_MEMORY_BYTES)
            unpacked, is_whole = xz.decompress(data, MAX_UNPACKED_BYTES), xz.eof
        else:
            deflate = zlib.decompressobj()
            unpacked, is_whole = deflate.decompress(data, MAX_UNPACKED_BYTES), deflate.eof
    except _DAMAGED as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error
    if not is_whole:
        raise ValueError(f"it is damaged, or more than {MAX_UNPACKED_BYTES} bytes")
    return unpacked
