"""Many STEP files, each kept from harming the others, on this machine or on a cluster.

Every file gets exactly one outcome. A crash or an endless loop costs the one file that caused it:
a file that ran out of time, or whose process ended, is tried once more alone, in a process that has
seen no other file, so that neither a busy machine nor a bad neighbour decides.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from brepfind.cad.arrays import PartArrays
from brepfind.cad.extract import ExtractConfig, extract_file
from brepfind.cad.isolation import Attempt, File, Work, attempts
from brepfind.errors import RejectedPart

T = TypeVar("T")

# One attempt at each file; the flag asks for one file at a time, in a fresh process.
Round = Callable[[Sequence[File], bool], Iterator[tuple[str, Attempt[T]]]]

# Reasons that do not follow from the file's content alone: another machine may find otherwise.
CIRCUMSTANCES = frozenset({"timeout", "memory", "crash", "missing"})


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What became of one file.

    Attributes:
        key: the name it was given under.
        parts: its graphs, or whatever the work returns; empty if it was rejected.
        reject: why it was rejected, or None.
        seconds: how long its worker took.
    """

    key: str
    parts: list[T]
    reject: RejectedPart | None
    seconds: float


def extract_many(
    files: Sequence[File], config: ExtractConfig, workers: int
) -> Generator[Outcome[PartArrays], None, None]:
    """Extract ``files`` (key, path), yielding outcomes as they are completed.

    Closing the generator, or Ctrl-C in the loop over it, ends the workers at once; what was
    yielded stays valid.

    Args:
        files: keys are free to choose and must differ, such as paths below the root.
        config: the ``extract`` section; its ``cluster`` says where.
        workers: processes at work at a time on this machine; a cluster has its own.

    Raises:
        InputError: if the cluster cannot be used.
    """
    if config.cluster == "local":
        return work_on(files, extract_file, config, workers)
    from brepfind.cad.cluster import work_on_cluster

    return work_on_cluster(files, extract_file, config)


def work_on(
    files: Sequence[File], work: Work[T], config: ExtractConfig, workers: int
) -> Generator[Outcome[T], None, None]:
    """Do ``work`` on each file in processes of this machine; see :func:`extract_many`."""
    workers = max(1, min(workers, len(files)))

    def one_round(some: Sequence[File], alone: bool) -> Iterator[tuple[str, Attempt[T]]]:
        return attempts(some, work, config, workers, alone)

    return twice(files, one_round)


def twice(files: Sequence[File], one_round: Round[T]) -> Generator[Outcome[T], None, None]:
    """A second attempt, alone, at every file of whose first the machine is a suspect."""
    unsure: set[str] = set()
    for key, attempt in one_round(files, False):
        if attempt.sure:
            yield _outcome(key, attempt)
        else:
            unsure.add(key)
    # In the order given, whatever order the clock chose.
    again = [file for file in files if file[0] in unsure]
    for key, attempt in one_round(again, True) if again else ():
        yield _outcome(key, attempt)


def _outcome(key: str, attempt: Attempt[T]) -> Outcome[T]:
    return Outcome(key, attempt.parts, attempt.reject, attempt.seconds)
