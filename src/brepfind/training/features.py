"""What frozen parts give for each part and caption: computed once, kept on disk.

The surface CNN alone costs milliseconds a face, the lower layers of the text tower as much a
caption; frozen, they give the same every epoch and in every run with the same weights. The folder
of a set of features is named after everything it follows from: the weights and settings that
compute it, what goes in (the parts' arrays; the captions' tokens, so a changed tokenizer counts),
the versions of the code and of torch. A SHA-256 beside each file finds bytes that changed since.

All ranks share the work and then read each other's pieces from the disk; machines share the folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from brepfind.cad.arrays import FEATURE_VERSION
from brepfind.checkpoints import checksums
from brepfind.distributed.group import Group
from brepfind.errors import CheckFailed, CheckpointError
from brepfind.files import digest
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.dgl_graph import tensor
from brepfind.log import get_logger
from brepfind.models.dual import DualEncoder
from brepfind.models.text import TextTower, Tokens
from brepfind.training.ragged import Ragged, write_ragged

log = get_logger(__name__)

# To be raised when the code computes something else from the same weights and inputs.
_KEPT_VERSION = 2
# Captions that pass together. The cut must not depend on the number of ranks: padding changes the
# last bits.
_CAPTIONS_AT_ONCE = 64


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of named tensors: names, dtypes, shapes and bytes."""
    total = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        total.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        total.update(
            value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    return total.hexdigest()


def part_features(
    dual: DualEncoder, reader: PartReader, ids: Sequence[str], group: Group, folder: Path
) -> tuple[Ragged | None, Ragged | None]:
    """Features of frozen CNNs for every part, or None for a CNN that learns.

    Returns:
        Columns ``surface`` (faces, dim/2) and ``curve`` (edges, heads) by number in ``ids``.
    """
    surface_cnn, curve_cnn = dual.encoder.cnns()
    contents = [reader.store.content(model_id) for model_id in ids]

    def surface(number: int) -> Tensor:
        grid = tensor(reader.store.load(ids[number]).face_grid).permute(0, 3, 1, 2)
        return dual.encoder.encode_surfaces(grid.to(group.device).contiguous()).cpu()

    def curve(number: int) -> Tensor:
        grid = tensor(reader.store.load(ids[number]).edge_grid).permute(0, 2, 1)
        return dual.encoder.encode_curves(grid.to(group.device).contiguous()).cpu()

    found: list[Ragged | None] = []
    for name, cnn, compute in (("surface", surface_cnn, surface), ("curve", curve_cnn, curve)):
        if is_frozen(cnn):
            key = _key(name, FEATURE_VERSION, tensors_digest(cnn.state_dict()), contents)
            found.append(_kept(folder / key, name, len(ids), compute, group))
        else:
            found.append(None)
    return found[0], found[1]


def caption_features(
    tower: TextTower, captions: Sequence[str], group: Group, folder: Path
) -> tuple[Ragged, int]:
    """What ``tower.lower`` gives for every caption: column ``hidden`` (tokens, h), by number; and
    how many captions are longer than the tower reads.
    """
    frozen = {
        name: value
        for name, value in tower.state_dict(keep_vars=True).items()
        if not getattr(value, "requires_grad", False)
    }

    # A chunk at a time: the tokens of all captions would be gigabytes where there are millions.
    def tokens(chunk: int) -> Tokens:
        start = chunk * _CAPTIONS_AT_ONCE
        return tower.tokenize(captions[start : start + _CAPTIONS_AT_ONCE])

    given, truncated = hashlib.sha256(), 0
    for chunk in range(-(-len(captions) // _CAPTIONS_AT_ONCE)):
        group.watch.beat("tokenize captions")
        ids, mask, cut = tokens(chunk)
        truncated += cut
        given.update(tensors_digest({"ids": ids, "mask": mask}).encode())
    folder /= _key("text", tower.settings(), tensors_digest(frozen), given.hexdigest())

    def hidden(chunk: int) -> list[Tensor]:
        ids, mask, _ = tokens(chunk)
        out = tower.lower(Tokens(ids.to(group.device), mask.to(group.device), 0)).cpu()
        lengths = mask.sum(1).tolist() if out.shape[1] > 1 else [1] * len(out)
        return [row[:length] for row, length in zip(out, lengths, strict=True)]

    done: dict[int, list[Tensor]] = {}

    def one(number: int) -> Tensor:
        chunk = number // _CAPTIONS_AT_ONCE
        if chunk not in done:
            done.clear()
            done[chunk] = hidden(chunk)
        return done[chunk][number % _CAPTIONS_AT_ONCE]

    # Whole chunks go to one rank, which then does not repeat another's work.
    kept = _kept(folder, "hidden", len(captions), one, group, run=_CAPTIONS_AT_ONCE)
    return kept, truncated


def is_frozen(module: nn.Module) -> bool:
    """Whether nothing in it learns and no statistic of it moves."""
    return not any(p.requires_grad for p in module.parameters()) and all(
        getattr(child, "frozen", True) for child in module.modules()
    )


def _key(name: str, *follows_from: object) -> str:
    """The folder of a set of features."""
    key = digest([name, _KEPT_VERSION, str(torch.__version__), *follows_from])
    return f"{name}-{key[:24]}"


def _kept(
    folder: Path,
    column: str,
    count: int,
    compute: Callable[[int], Tensor],
    group: Group,
    run: int = 1,
) -> Ragged:
    """The features in ``folder``; if it has none, the ranks compute a piece each."""
    pieces = _complete(folder)
    mine = pieces[group.rank :: group.world]
    sound = bool(pieces) and all(_sound(piece) for piece in mine)
    # Decided by all: a rank that saw the last piece just appear must not skip the barrier.
    if group.all(sound, f"look for kept {column}"):
        what = "kept by an earlier run"
    else:
        what = "computed once and kept"
        pieces = _pieces(folder, group.world)
        _compute(pieces[group.rank], column, count, compute, group, run)
        group.barrier(f"compute {column}")
    if group.first:
        log.info("%s features of %d entries do not learn: %s, %s", column, count, what, folder)
    return Ragged(pieces) if run == 1 else _Runs(pieces, run)


def _compute(
    path: Path, column: str, count: int, compute: Callable[[int], Tensor], group: Group, run: int
) -> None:
    """Compute this rank's share into ``path``, holding one entry at a time."""

    def entries() -> Iterator[Tensor]:
        for number in _mine(count, group.rank, group.world, run):
            group.watch.beat(f"compute {column}")
            entry = compute(number)
            if not torch.isfinite(entry).all():
                raise CheckFailed(f"the {column} features of entry {number} are not finite")
            yield entry

    with torch.no_grad():
        write_ragged(path, column, entries())


def _sound(piece: Path) -> bool:
    """Whether a kept file has the bytes that were written; if not, it goes."""
    try:
        checksums.verify_sidecar(piece, required=True)
    except CheckpointError as error:
        log.warning("%s; removed, to be computed again", error)
        piece.unlink(missing_ok=True)
        return False
    return True


class _Runs(Ragged):
    """Entries dealt to the pieces in runs: run r lies in piece r % n."""

    def __init__(self, pieces: Sequence[Path], run: int) -> None:
        super().__init__(pieces)
        self._run = run

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_run": self._run}

    def entry(self, column: str, number: int) -> Tensor:
        chunk, within = divmod(number, self._run)
        n = len(self._paths)
        return super().entry(column, (chunk // n * self._run + within) * n + chunk % n)


def _mine(count: int, rank: int, world: int, run: int) -> list[int]:
    return [number for number in range(count) if number // run % world == rank]


def _complete(folder: Path) -> list[Path]:
    """The pieces of a set that is whole, of however many ranks; none if there is none."""
    for first in sorted(folder.glob("0000-of-*.safetensors")):
        pieces = _pieces(folder, int(first.name[8:12]))
        if all(piece.exists() for piece in pieces):
            return pieces
    return []


def _pieces(folder: Path, total: int) -> list[Path]:
    return [folder / f"{number:04d}-of-{total:04d}.safetensors" for number in range(total)]
