"""How far colours are apart: for text on its ground, and for eyes that tell few apart."""

from __future__ import annotations

from collections.abc import Sequence

from textual.color import Color

SIGHTS: dict[str, tuple[Sequence[float], ...]] = {
    "usual": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""What becomes of linear RGB, by Machado, Oliveira and Fernandes 2009, at full severity."""


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21, as WCAG 2 has it."""
    darker, lighter = sorted(
        0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in map(_linear, (one, other))
    )
    return (lighter + 0.05) / (darker + 0.05)


def apart(one: str, other: str, sight: str) -> float:
    """Return how far two colours are apart for a kind of sight, as CIE 1976 has it: at 2 they are just told apart."""
    seen = [[min(1.0, max(0.0, _dot(row, _linear(colour)))) for row in SIGHTS[sight]] for colour in (one, other)]
    return float(sum((first - second) ** 2 for first, second in zip(*map(_lab, seen), strict=True)) ** 0.5)


def _dot(row: Sequence[float], colour: Sequence[float]) -> float:
    return sum(factor * part for factor, part in zip(row, colour, strict=True))


def _linear(colour: str) -> list[float]:
    parts = [part / 255 for part in Color.parse(colour).rgb]
    return [part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4) for part in parts]


def _lab(linear: Sequence[float]) -> tuple[float, float, float]:
    white = ((0.4124, 0.3576, 0.1805, 0.95047), (0.2126, 0.7152, 0.0722, 1.0), (0.0193, 0.1192, 0.9505, 1.08883))
    shares = [_dot(row[:3], linear) / row[3] for row in white]
    x, y, z = (float(share ** (1 / 3)) if share > 0.008856 else 7.787 * share + 16 / 116 for share in shares)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)
