"""Where the time goes, by name.

On a GPU work is queued: a lap also holds what the device still had to do when the processor next
waited for it, which is in the guard's look at the features and at the gradient's norm.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Clock:
    """Adds up seconds by name, each from the last lap to the next."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        """Give the time since the last lap to ``name``."""
        now = time.perf_counter()
        self.add(name, now - self._since)
        self._since = now

    def skip(self) -> None:
        """Give the time since the last lap to nobody."""
        self._since = time.perf_counter()

    def add(self, name: str, seconds: float) -> None:
        """Give seconds measured elsewhere to ``name``."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
