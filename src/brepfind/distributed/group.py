"""One module owns the process group: how it opens, what ranks ask of each other, how it closes.

The word rank here always means process rank. Everything works unchanged with one process, where
there is no group and nothing to ask. Every method that talks to other ranks is a collective: all
ranks must call it, in the same order, under no condition that only one of them knows.

There are two groups. The default one carries gradients and features (NCCL on GPUs, gloo on a CPU).
The control group is gloo always: small agreements travel on it, so that they need no GPU, do not
queue behind gradients, and still work when a GPU is stuck.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from brepfind.distributed.watch import Watch
from brepfind.errors import CheckFailed, UserError

T = TypeVar("T")

# A collective gives up this much later than the watch does, so that a hang is reported by the
# watch, which knows who did not arrive, and not by gloo, which does not.
_GRACE_S = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where this process stands in the job; torchrun's environment variables."""

    rank: int
    world: int
    local_rank: int
    local_world: int

    @classmethod
    def from_environment(cls) -> Place:
        """Read RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; one process without them."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        rank = int(os.environ.get("RANK", "0"))
        place = cls(
            rank=rank,
            world=world,
            local_rank=int(os.environ.get("LOCAL_RANK", str(rank))),
            local_world=int(os.environ.get("LOCAL_WORLD_SIZE", str(world))),
        )
        if not (0 <= place.rank < place.world and 0 <= place.local_rank < place.local_world):
            raise UserError(
                f"RANK and WORLD_SIZE do not fit together: {place}; start with torchrun"
            )
        return place


class Group:
    """The processes of one job, as one of them sees them. Made by :func:`open_group`."""

    def __init__(
        self,
        place: Place,
        device: torch.device,
        watch: Watch,
        control: dist.ProcessGroup | None,
        timeout_s: float,
    ) -> None:
        self.rank = place.rank
        self.world = place.world
        self.local_rank = place.local_rank
        self.local_world = place.local_world
        self.device = device
        self.watch = watch
        self.timeout_s = timeout_s
        self._control = control

    @property
    def first(self) -> bool:
        """Whether this is rank 0, the one that writes."""
        return self.rank == 0

    def table(self, row: Sequence[int], place: str) -> list[list[int]]:
        """Every rank's row of whole numbers, in the order of ranks; one small collective."""
        if self.world == 1:
            return [list(row)]
        mine = torch.tensor(row, dtype=torch.int64)
        rows = [torch.empty_like(mine) for _ in range(self.world)]
        with self.watch.waiting(place):
            dist.all_gather(rows, mine, group=self._control)
        return [item.tolist() for item in rows]

    def gather(self, value: T, place: str) -> list[T]:
        """Every rank's value (anything that pickles), in the order of ranks."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        with self.watch.waiting(place):
            dist.all_gather_object(values, value, group=self._control)
        return values

    def from_first(self, value: T, place: str) -> T:
        """Rank 0's value on every rank: rank 0 decides, all agree."""
        if self.world == 1:
            return value
        box: list[Any] = [value]
        with self.watch.waiting(place):
            dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def any(self, flag: bool, place: str) -> bool:
        """Whether the flag is set on any rank; the same answer everywhere."""
        return any(row[0] for row in self.table([int(flag)], place))

    def all(self, flag: bool, place: str) -> bool:
        """Whether the flag is set on all ranks; the same answer everywhere."""
        return all(row[0] for row in self.table([int(flag)], place))

    def same(self, what: str, value: Any) -> None:
        """Assert that a value is the same on all ranks.

        Raises:
            CheckFailed: on every rank, naming ``what`` and each rank's value.
        """
        values = self.gather(value, f"compare {what}")
        if any(other != values[0] for other in values):
            seen = ", ".join(f"rank {rank}: {other}" for rank, other in enumerate(values))
            raise CheckFailed(f"{what} differs between ranks ({seen})")

    def barrier(self, place: str) -> None:
        """Wait until all ranks are here.

        Unlike a collective this has no time limit of its own: a rank may work on for as long as
        it shows life (:meth:`Watch.beat`), and one that does not is named by the watch.
        """
        if self.world > 1:
            with self.watch.waiting(place):
                self.watch.meet(place)

    @contextmanager
    def local_rank_zero_first(self, what: str) -> Iterator[None]:
        """Let local rank 0 of each node run the block before the others.

        It downloads, unpacks or converts; the others then find the result on the disk and never
        see half a file.
        """
        if self.local_rank != 0:
            self.barrier(f"{what}: local rank 0 first")
        try:
            yield
        finally:
            # Also when the block raises: the others must not wait for a rank that gave up. They
            # meet the same error themselves or are ended by the watch.
            if self.local_rank == 0:
                self.barrier(f"{what}: local rank 0 first")
        self.barrier(f"{what}: done")


@contextmanager
def open_group(
    timeout_s: float, *, device: Literal["auto", "cpu"] = "auto", stacks: str | None = None
) -> Iterator[Group]:
    """Open the process group that torchrun's environment describes, and close it after the block.

    Args:
        timeout_s: no rank may go without a sign of life, and no collective may wait, longer.
        device: ``auto`` takes one GPU per local rank where there are any.
        stacks: the folder for the Python stacks that a hang leaves; None leaves none.

    Raises:
        UserError: if the ranks cannot find each other, or a node has fewer GPUs than ranks.
    """
    place = Place.from_environment()
    where = _device(place, device)
    watch = Watch(place.rank, place.world, timeout_s=timeout_s, folder=stacks)
    control = None
    if place.world > 1:
        control = _connect(place, where, timeout_s)
        watch.connect(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    watch.start()
    try:
        yield Group(place, where, watch, control, timeout_s)
    except BaseException as error:
        watch.failed(error)
        raise
    finally:
        watch.stop()
        if dist.is_initialized():
            dist.destroy_process_group()


def _device(place: Place, device: Literal["auto", "cpu"]) -> torch.device:
    if device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if torch.cuda.device_count() < place.local_world:
        raise UserError(
            f"{place.local_world} processes on this machine but {torch.cuda.device_count()} GPUs; "
            "set train.processes to the number of GPUs of all machines"
        )
    torch.cuda.set_device(place.local_rank)
    return torch.device("cuda", place.local_rank)


def _connect(place: Place, device: torch.device, timeout_s: float) -> dist.ProcessGroup:
    limit = timedelta(seconds=timeout_s + _GRACE_S)
    try:
        if device.type == "cuda":
            dist.init_process_group("nccl", timeout=limit, device_id=device)
        else:
            dist.init_process_group("gloo", timeout=limit)
        return dist.new_group(backend="gloo", timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"rank {place.rank} of {place.world}: the processes did not find each other within "
            f"{timeout_s:g} s ({' '.join(str(error).split())[:300]})"
        ) from error


def assert_no_complex(module: nn.Module, what: str) -> None:
    """Refuse complex parameters and buffers: NCCL cannot carry them, and gloo would hide it.

    Raises:
        CheckFailed: naming every complex tensor.
    """
    named: list[tuple[str, Tensor]] = [*module.named_parameters(), *module.named_buffers()]
    bad = [name for name, value in named if value.is_complex()]
    if bad:
        raise CheckFailed(
            f"{what} holds {len(bad)} complex tensors, which NCCL cannot carry: "
            f"{', '.join(bad[:5])}; store real and imaginary parts as two real buffers"
        )
