"""``python -m brepfind.distributed.launch ARGUMENTS...`` is torchrun, less its traceback.

When a rank fails, torchrun ends with forty lines about itself. The ranks have said why they ended;
what is worth a line here is which of them ended how, or which machine does not answer.
"""

from __future__ import annotations

import os
import sys

# Read when torch is imported, here and in the ranks. A connection that ends is otherwise a page of
# C++ frames in the terminal of every rank that had one, above the line that says who is gone.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

from brepfind.log import get_logger, setup_logging

log = get_logger(__name__)

if __name__ == "__main__":
    setup_logging()
    try:
        main(sys.argv[1:])
    except ChildFailedError as error:
        ended = sorted(error.failures.items())
        log.warning(
            "%s", "; ".join(f"rank {rank} ended with code {one.exitcode}" for rank, one in ended)
        )
        sys.exit(1)
    except SignalException as error:
        # It has told the ranks, and they have said what they saved.
        log.warning("told to stop (%s)", error.sigval.name)
        sys.exit(1)
    except DistError as error:
        # The machines never met, or the port to meet at is taken.
        log.error("the machines of this training: %s", " ".join(str(error).split())[:300])
        sys.exit(1)
