"""What the machine does while a stage runs: processor, memory, disk, network and GPUs, as curves.

MLflow's own gauges, read by a thread. What they show is taken by the tracker and goes the way of
every other number, so it survives an outage too.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator

from mlflow.environment_variables import MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL
from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor
from mlflow.system_metrics.metrics.rocm_monitor import ROCMMonitor

from brepfind.log import get_logger

_EVERY_S = 10.0
Reading = tuple[str, float, int, int]  # name, value, step, milliseconds

log = get_logger(__name__)


class Machine:
    """The gauges, read every ten seconds (or ``MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL``) until
    :meth:`stop`, and once more then.
    """

    def __init__(self) -> None:
        self._every = MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL.get() or _EVERY_S
        self._gauges = [CPUMonitor(), DiskMonitor(), NetworkMonitor(), *_gpus()]
        self._read: queue.SimpleQueue[Reading] = queue.SimpleQueue()
        self._done = threading.Event()
        self._step = 0
        self._sample(keep=False)  # a processor's load is that since the last look
        self._thread = threading.Thread(target=self._watch, name="machine", daemon=True)
        self._thread.start()

    def taken(self) -> Iterator[Reading]:
        """What was read since the last call."""
        while not self._read.empty():
            yield self._read.get()

    def stop(self) -> None:
        """Read once more and stop; a second call does nothing."""
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            while not self._done.wait(self._every):
                self._sample()
            self._sample()
        # A gauge that a container or a driver does not have must not stop the work.
        except Exception as error:
            log.warning("the machine's load is not recorded any more (%s)", error)

    def _sample(self, *, keep: bool = True) -> None:
        for gauge in self._gauges:
            gauge.clear_metrics()
            gauge.collect_metrics()
            if keep:
                for name, value in gauge.aggregate_metrics().items():
                    at = int(time.time() * 1000)
                    self._read.put((f"system/{name}", float(value), self._step, at))
        self._step += keep


def _gpus() -> Iterator[BaseMetricsMonitor]:
    """The GPUs' gauge, where there is one."""
    kinds: list[Callable[[], BaseMetricsMonitor]] = [GPUMonitor, ROCMMonitor]
    for kind in kinds:
        try:
            yield kind()
        except Exception as error:  # no library, no driver, no GPU: each says it in its own way
            log.debug("%s: %s", kind, error)
