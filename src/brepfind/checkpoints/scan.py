"""The vital signs of every tensor: what is not finite, constant, denormal, or far out of range.

One pass over the bytes, block by block, on as many threads as torch would use; nothing is copied
but one block at a time, and no dtype crashes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from brepfind.checkpoints.bits import FLOATS, number
from brepfind.checkpoints.checksums import Piece
from brepfind.checkpoints.crc import append
from brepfind.checkpoints.details import constant_rows, far_values
from brepfind.checkpoints.layout import Entry, Role
from brepfind.checkpoints.parts import Parts, prepare
from brepfind.checkpoints.signs import Signs, look_at

_TASK_BYTES = 32 << 20  # work for one thread at a time
_SMALL_BYTES = 1 << 18  # tensors below this share a task
_BATCH = 32

Index = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorVitals:
    """What one tensor looks like. Counts are of stored numbers; a complex value is two.

    Attributes:
        name: as in the checkpoint.
        role: what the tensor is for.
        dtype: as stored.
        shape: as stored.
        numel: stored numbers that were looked at.
        nan: how many are NaN; ``first_nan`` says where the first of them is.
        inf: how many are infinite.
        largest: the greatest finite magnitude; NaN for integers and booleans.
        constant: all values are one; ``zero`` says that it is zero.
        denormal: how many are denormal.
        constant_rows: rows (along the first dimension) that hold one value each.
        far: how many are above a thousand times the 90th percentile of the magnitudes.
        complex: the dtype is complex.
        imaginary_zero: complex, and every imaginary part is zero.
        unreadable: why the values could not be looked at; empty if they could.
    """

    name: str
    role: Role
    dtype: torch.dtype
    shape: tuple[int, ...]
    numel: int = 0
    nan: int = 0
    first_nan: Index | None = None
    inf: int = 0
    first_inf: Index | None = None
    largest: float = float("nan")
    constant: bool = False
    zero: bool = False
    denormal: int = 0
    first_denormal: Index | None = None
    constant_rows: int = 0
    first_constant_row: int | None = None
    far: int = 0
    first_far: Index | None = None
    far_factor: float = 0.0
    complex: bool = False
    imaginary_zero: bool = False
    unreadable: str = ""

    @property
    def nan_share(self) -> float:
        """The share of NaN, 0 to 1."""
        return self.nan / self.numel if self.numel else 0.0

    @property
    def inf_share(self) -> float:
        """The share of infinities, 0 to 1."""
        return self.inf / self.numel if self.numel else 0.0


def scan(
    tensors: Mapping[str, torch.Tensor] | Iterable[Entry],
    *,
    pool: ThreadPoolExecutor | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> list[TensorVitals]:
    """Look at every value of every tensor, in the order given.

    Args:
        tensors: by name, or the entries of a checkpoint.
        pool: threads from :func:`threads` to share with other work; own ones by default.
        advance: told the bytes that were done.
    """
    entries = _entries(tensors)
    if pool is None:
        with threads() as own:
            return list(Scan(entries, own, advance).results())
    return list(Scan(entries, pool, advance).results())


@contextmanager
def threads() -> Iterator[ThreadPoolExecutor]:
    """As many threads as torch uses, each of which runs its operations alone."""
    count = max(torch.get_num_threads(), 1)
    # The number of threads is each thread's own: the caller's stays as it is.
    with ThreadPoolExecutor(
        max_workers=count, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class Scan:
    """A scan that was set going.

    Where a tensor is the whole of a piece of its file, the piece's checksum is summed in the same
    pass: the two together cost little more than the sum alone.

    Args:
        entries: what to look at.
        pool: threads from :func:`threads`.
        advance: told the bytes that were done.
        located: the pieces by the address of the storage that is mapped to them.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        pool: ThreadPoolExecutor,
        advance: Callable[[int], None] = lambda _: None,
        located: Mapping[int, Piece] | None = None,
    ) -> None:
        self._advance = advance
        self._jobs: list[_Job] = []
        self.summed: set[Piece] = set()
        self.suspects: list[Piece] = []  # whose sums did not match; complete after the results
        batch: list[_Job] = []
        for entry in entries:
            job = _Job(entry, prepare(entry.tensor))
            job.piece = self._claim(job, located or {})
            self._jobs.append(job)
            if isinstance(job.parts, str):
                continue
            if job.parts.plain.values.nbytes <= _SMALL_BYTES:
                batch.append(job)
            else:
                job.submit(pool)
            if len(batch) == _BATCH:
                _submit_together(pool, batch)
                batch = []
        _submit_together(pool, batch)

    def _claim(self, job: _Job, located: Mapping[int, Piece]) -> Piece | None:
        """The piece that a tensor is the whole of, if no other tensor has it already."""
        if isinstance(job.parts, str) or not located:
            return None
        values = job.parts.plain.values
        piece = located.get(values.data_ptr())
        if piece is None or piece in self.summed or piece.length != values.nbytes:
            return None
        if not values.is_contiguous():
            return None
        self.summed.add(piece)
        return piece

    def results(self) -> Iterator[TensorVitals]:
        """The vitals of each entry in order, as they come."""
        for job in self._jobs:
            if isinstance(job.parts, str):
                yield replace(_blank(job.entry), unreadable=job.parts)
                continue
            vitals, crc = job.result(self._advance)
            if job.piece is not None and crc != job.piece.crc:
                self.suspects.append(job.piece)
            yield vitals


@dataclass(slots=True)
class _Job:
    """One tensor on its way."""

    entry: Entry
    parts: Parts | str
    piece: Piece | None = None
    stretches: list[Future[Signs]] = field(default_factory=list)
    together: Future[list[tuple[TensorVitals, int]]] | None = None
    place: int = 0

    def submit(self, pool: ThreadPoolExecutor) -> None:
        assert isinstance(self.parts, Parts)
        values = self.parts.plain.values
        summing = self.piece is not None
        length = max(1, _TASK_BYTES // values.element_size())
        bounds: list[tuple[int, int | None]] = [(0, None)]
        if values.is_contiguous():
            count = values.numel()
            bounds = [(at, min(at + length, count)) for at in range(0, count, length)]
        self.stretches = [
            pool.submit(look_at, self.parts, start, stop, summing) for start, stop in bounds
        ]

    def result(self, advance: Callable[[int], None]) -> tuple[TensorVitals, int]:
        assert isinstance(self.parts, Parts)
        if self.together is not None:
            done = self.together.result()[self.place]
            advance(self.parts.plain.values.nbytes)
            return done
        total = Signs()
        for stretch in self.stretches:
            signs = stretch.result()
            total.crc = append(total.crc, signs.crc, signs.nbytes)
            total.add(signs)
            advance(signs.nbytes)
        return _finish(self.entry, self.parts, total), total.crc


def _submit_together(pool: ThreadPoolExecutor, jobs: list[_Job]) -> None:
    future = pool.submit(_small_ones, list(jobs))
    for place, job in enumerate(jobs):
        job.together, job.place = future, place


def _small_ones(jobs: list[_Job]) -> list[tuple[TensorVitals, int]]:
    done = []
    for job in jobs:
        assert isinstance(job.parts, Parts)
        signs = look_at(job.parts, 0, None, job.piece is not None)
        done.append((_finish(job.entry, job.parts, signs), signs.crc))
    return done


def _blank(entry: Entry) -> TensorVitals:
    return TensorVitals(
        name=entry.name,
        role=entry.role,
        dtype=entry.tensor.dtype,
        shape=tuple(entry.tensor.shape),
        complex=entry.tensor.is_complex(),
    )


def _finish(entry: Entry, parts: Parts, total: Signs) -> TensorVitals:
    part = parts.plain

    def index(position: int | None) -> Index | None:
        # Of a sparse tensor only the stored values are known by their place.
        if position is None or entry.tensor.layout is not torch.strided:
            return None
        place = part.index(position)
        return place[:-1] if entry.tensor.is_complex() else place

    vitals = replace(
        _blank(entry),
        numel=part.values.numel(),
        nan=total.nan,
        first_nan=index(total.first_nan),
        inf=total.inf,
        first_inf=index(total.first_inf),
        constant=total.one is not None and not total.varies and not total.nan,
        denormal=total.denormal,
        first_denormal=index(total.first_denormal),
    )
    for scales in parts.beside:
        vitals = replace(
            vitals,
            numel=scales.numel(),
            nan=int(scales.isnan().sum()),
            inf=int(scales.isinf().sum()),
        )
    if part.values.dtype not in FLOATS:
        return replace(vitals, zero=vitals.constant and total.one == 0)
    zero = vitals.constant and total.high == 0 and FLOATS[part.values.dtype].zero
    vitals = replace(vitals, zero=zero, largest=number(total.high, part.values.dtype))
    if entry.tensor.is_complex():
        imaginary = part.values.select(part.order.index(len(part.order) - 1), 1)
        vitals = replace(vitals, imaginary_zero=not bool(torch.count_nonzero(imaginary)))
    if vitals.constant or entry.tensor.layout is not torch.strided:
        return vitals
    # Rows of NaN are told as NaN.
    rows, first_row = (0, None) if vitals.nan else constant_rows(part.values, total.alike)
    vitals = replace(vitals, constant_rows=rows, first_constant_row=first_row)
    far = far_values(part, vitals.largest)
    if far is None:
        return vitals
    return replace(vitals, far=far.count, first_far=index(far.first), far_factor=far.factor)


def _entries(tensors: Mapping[str, torch.Tensor] | Iterable[Entry]) -> list[Entry]:
    if isinstance(tensors, Mapping):
        return [
            Entry(path=(name,), name=name, role="weights", tensor=tensor.detach())
            for name, tensor in tensors.items()
        ]
    return list(tensors)
