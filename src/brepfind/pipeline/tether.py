"""``python -m brepfind.pipeline.tether PARENT COMMAND...`` runs COMMAND in its own place, so that
it is told to stop when the process PARENT ends, however it ends.

A program of its own because asking the kernel between fork and exec (``preexec_fn``) is not safe
in a process with threads.
"""

from __future__ import annotations

import os
import sys

from brepfind.processes import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 (a list of our own making, no shell)
