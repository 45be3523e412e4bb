"""Metric threads (ISO 261, ISO 262) and the words for a threaded part.

Threads are drawn plainly, as vendors' models do: an outer thread as a cylinder of its pitch
diameter (ISO 724), an inner one as a hole of its tapping drill.
"""

from __future__ import annotations

# Nominal diameter to pitch, mm: the coarse series, and the first choice of the fine series.
COARSE = {
    1.6: 0.35, 2.0: 0.4, 2.5: 0.45, 3.0: 0.5, 4.0: 0.7, 5.0: 0.8, 6.0: 1.0, 8.0: 1.25, 10.0: 1.5,
    12.0: 1.75, 14.0: 2.0, 16.0: 2.0, 18.0: 2.5, 20.0: 2.5, 22.0: 2.5, 24.0: 3.0, 27.0: 3.0,
    30.0: 3.5, 36.0: 4.0, 42.0: 4.5, 48.0: 5.0,
}  # fmt: skip
FINE = {
    8.0: 1.0, 10.0: 1.25, 12.0: 1.5, 14.0: 1.5, 16.0: 1.5, 18.0: 1.5, 20.0: 1.5, 22.0: 1.5,
    24.0: 2.0, 27.0: 2.0, 30.0: 2.0, 36.0: 3.0,
}  # fmt: skip

# Lengths of screws, mm (ISO 888).
LENGTHS = (
    3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 80, 90, 100, 110, 120,
    130, 140, 150, 160, 180, 200,
)  # fmt: skip


def pitch_diameter(diameter: float, pitch: float) -> float:
    """The diameter at which an outer thread is drawn."""
    return diameter - 0.6495 * pitch


def tap_drill(diameter: float, pitch: float) -> float:
    """The diameter at which an inner thread is drawn."""
    return diameter - pitch


def pitch_of(diameter: float, fine: bool) -> float:
    """The pitch of a thread in one of the two series."""
    return FINE[diameter] if fine else COARSE[diameter]


def thread_names(diameter: float, fine: bool) -> tuple[str, ...]:
    """Ways to write a thread: ``M8`` (coarse only), ``M8x1.25``, ``M8 x 1.25``."""
    pitch = pitch_of(diameter, fine)
    exact = (f"M{diameter:g}x{pitch:g}", f"M{diameter:g} x {pitch:g}")
    return exact if fine else (f"M{diameter:g}", *exact)


def screw_sizes(diameter: float, length: float, fine: bool) -> tuple[str, ...]:
    """Ways to write the size of a screw: ``M8 x 40``, ``M8x1.25x40``, ``M8-1.25 x 40``."""
    pitch = pitch_of(diameter, fine)
    exact = (
        f"M{diameter:g}x{pitch:g}x{length:g}",
        f"M{diameter:g}-{pitch:g} x {length:g}",
    )
    plain = (
        f"M{diameter:g} x {length:g}",
        f"M{diameter:g}x{length:g}",
        f"M{diameter:g}*{length:g}",
    )
    return exact if fine else (*plain, *exact)
