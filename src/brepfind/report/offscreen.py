"""pyvista for a machine without a screen."""

from __future__ import annotations

import os
from types import ModuleType


def pyvista_offscreen() -> ModuleType:
    """pyvista, told before its first import not to look for an X server and complain of none.

    Without a graphics card Mesa draws on the processor, in one thread: several processes draw side
    by side, and threads of a small picture mostly wait for each other.
    """
    os.environ.setdefault("LP_NUM_THREADS", "1")
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("VTK_DEFAULT_OPENGL_WINDOW", "vtkEGLRenderWindow")
    import pyvista

    return pyvista
