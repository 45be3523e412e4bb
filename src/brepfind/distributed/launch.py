"""``python -m brepfind.distributed.launch ARGUMENTS...`` is torchrun, less its traceback.

When a rank fails, torchrun ends with forty lines about itself. The ranks have said why they ended;
what is worth a line here is which of them ended how.
"""

from __future__ import annotations

import sys

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
