"""The one place that imports DGL, with a plain message where that fails."""

from __future__ import annotations

import os

import torch

from brepfind.errors import UserError

# Without it the first import on a machine prints a notice and writes a file into the home folder.
os.environ.setdefault("DGLBACKEND", "pytorch")

try:
    import dgl
except Exception as error:  # a wrong build fails with an OSError, FileNotFoundError or others
    raise UserError(
        f"dgl cannot be imported ({type(error).__name__}: {error}). Graphs need dgl 1.1.3, the "
        f"last release that works with a current torch (this one is {torch.__version__}), and "
        'packaging: pip install "brepfind[graphs]"'
    ) from error

DGLGraph = dgl.DGLGraph
