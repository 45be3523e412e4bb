"""The graph store: tens of shard files, a manifest and a list of rejects.

    shard-00000.safetensors   the arrays of many parts end to end, with offsets
    manifest.parquet          a row per part
    rejects.csv               a row per file that did not make it

A part's shard follows from its id's hash, so that adding a part does not move the rest. Inside a
shard parts stand in the order of their ids, so that the bytes do not depend on the order of
arrival. The manifest is written last: a folder without one is not a store.

Paths, ids and messages are data: quotes, line breaks and any script survive as they are. What is
not valid Unicode (a file name of another encoding) is kept with backslash escapes.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from brepfind.cad.arrays import PartArrays, PartFacts
from brepfind.errors import InputError
from brepfind.files import atomic_path, unicode_text, write_text
from brepfind.graphs import store_layout as layout
from brepfind.graphs.schema import FIELDS, check_arrays, content_hash, grid_of
from brepfind.graphs.tensor_file import TensorFile

_SPILL_PREFIX = ".writing-"
_OFFSET = "offset"  # of a part in its shard's spill file


class GraphStoreWriter:
    """Writes a graph store; as a context manager it closes on success and tidies up on failure.

    Parts are spilled to one file per shard on arrival, their rows of the manifest to another, and
    :meth:`close` copies them part by part. In memory are the ids, and in the end the manifest. One
    writer at a time per folder.

    Args:
        folder: where the store will be; created if missing. An older store in it is replaced.
        shards: how many shard files at most; those that no part falls into are not written.
    """

    def __init__(self, folder: Path, shards: int) -> None:
        if shards < 1:
            raise ValueError(f"shards is {shards}, must be at least 1")
        self._folder = folder
        self._shards = shards
        self._ids: set[str] = set()
        self._rejects: list[tuple[str, str, str]] = []
        self._grid: int | None = None
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(f"{_SPILL_PREFIX}*"):
            shutil.rmtree(stale, ignore_errors=True)
        self._spill = Path(tempfile.mkdtemp(prefix=_SPILL_PREFIX, dir=folder))

    def __enter__(self) -> GraphStoreWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def add(self, model_id: str, path: str, sha256: str, arrays: PartArrays) -> None:
        """Take a part in.

        Args:
            model_id: unique in the store.
            path: the STEP file, POSIX, relative to the corpus' root.
            sha256: of the STEP file's bytes, in hexadecimal.

        Raises:
            RejectedPart: if a number is not finite or there is no face; hand it to :meth:`reject`.
            InputError: if the id stands already, or the grid size is not that of the parts before.
        """
        model_id, path = unicode_text(model_id), unicode_text(path)
        check_arrays(arrays, where=path)
        shard = layout.shard_of(model_id, self._shards)
        if model_id in self._ids:
            (other,) = (row["path"] for row in self._rows(shard) if row["model_id"] == model_id)
            raise InputError(f"{path}: its id {model_id!r} is taken by {other}; ids must be unique")
        grid = grid_of(arrays)
        if self._grid not in (None, grid):
            raise InputError(f"{path}: its grid size is {grid}, the store's is {self._grid}")
        self._grid = grid
        with (self._spill / str(shard)).open("ab") as file:
            offset = file.tell()
            for item in FIELDS:
                file.write(np.ascontiguousarray(getattr(arrays, item.name)).data)
        row = {"model_id": model_id, "path": path, "sha256": sha256, "shard": shard}
        row |= layout.facts_row(arrays) | {"content": content_hash(arrays), _OFFSET: offset}
        with (self._spill / f"{shard}.rows").open("a", encoding="utf-8") as rows:
            # NumPy's numbers become plain ones; floats are written so that they come back the same.
            rows.write(json.dumps(row, default=lambda value: value.tolist()) + "\n")
        self._ids.add(model_id)

    def reject(self, path: str, reason: str, message: str) -> None:
        """Record a file that did not make it: its path, a short reason code, a sentence."""
        self._rejects.append((unicode_text(path), unicode_text(reason), unicode_text(message)))

    @property
    def counts(self) -> tuple[int, int]:
        """How many parts were taken in, and how many files rejected."""
        return len(self._ids), len(self._rejects)

    def close(self) -> None:
        """Write everything; until the last file is there the folder holds no store."""
        (self._folder / layout.MANIFEST).unlink(missing_ok=True)
        tables: dict[str, pa.Table] = {}
        for shard in range(self._shards):
            if rows := sorted(self._rows(shard), key=lambda row: row["model_id"]):
                self._write_shard(shard, rows)
                table = pa.Table.from_pylist(rows, schema=layout.MANIFEST_SCHEMA)
                tables[layout.shard_name(shard)] = table
        for stale in self._folder.glob("shard-*.safetensors"):
            if stale.name not in tables:
                stale.unlink()
        write_text(self._folder / layout.REJECTS, layout.rejects_text(self._rejects))
        self._write_manifest(tables.values())
        shutil.rmtree(self._spill)

    def abort(self) -> None:
        """Remove what was spilled; nothing is written."""
        shutil.rmtree(self._spill, ignore_errors=True)

    def _rows(self, shard: int) -> Iterator[dict[str, Any]]:
        """Rows of the manifest as far as they are known, in the order of arrival."""
        path = self._spill / f"{shard}.rows"
        if path.is_file():
            with path.open(encoding="utf-8") as rows:
                yield from map(json.loads, rows)

    def _write_shard(self, shard: int, rows: list[dict[str, Any]]) -> None:
        """Write a shard; the rows, in the order of their ids, learn their positions."""
        assert self._grid is not None  # a part was added, or there would be no shard
        offsets = {
            kind: np.cumsum([0, *(row[count] for row in rows)], dtype=np.int64)
            for kind, count in (("face", "faces"), ("edge", "edges"))
        }
        tensors = {
            item.name: (item.dtype, item.shape(int(offsets[item.rows][-1]), self._grid))
            for item in FIELDS
        }
        tensors |= {f"{kind}_offsets": ("int64", value.shape) for kind, value in offsets.items()}
        metadata = layout.pack_metadata(grid=self._grid, ids=[row["model_id"] for row in rows])
        with (
            (self._spill / str(shard)).open("rb") as spilled,
            atomic_path(self._folder / layout.shard_name(shard)) as aside,
            aside.open("wb") as file,
        ):
            whole = TensorFile(file, tensors, metadata)
            for kind, value in offsets.items():
                whole.write(f"{kind}_offsets", 0, value)
            for position, row in enumerate(rows):
                row["position"] = position
                spilled.seek(row.pop(_OFFSET))
                for item in FIELDS:
                    begin, end = offsets[item.rows][position : position + 2]
                    shape = item.shape(int(end - begin), self._grid)
                    count = math.prod(shape)
                    content = spilled.read(count * np.dtype(item.dtype).itemsize)
                    values = np.frombuffer(content, item.dtype, count).reshape(shape)
                    whole.write(item.name, int(begin), values)

    def _write_manifest(self, tables: Iterable[pa.Table]) -> None:
        metadata = layout.pack_metadata(grid=self._grid, shards=self._shards)
        schema = layout.MANIFEST_SCHEMA.with_metadata(metadata)
        table = pa.concat_tables([schema.empty_table(), *(t.cast(schema) for t in tables)])
        # UTF-8 sorts by code point, as ids do. One chunk, so that the bytes depend on rows alone.
        table = table.sort_by("model_id").combine_chunks()
        with atomic_path(self._folder / layout.MANIFEST) as aside:
            pq.write_table(table, aside)


class GraphStore:
    """Reads a graph store. Cheap to open and to pickle: shards are mapped when they are needed.

    Each part's bytes are checked against the content hash of the manifest when it is first loaded,
    because neither safetensors nor the file system would notice a flipped bit.

    Attributes:
        manifest: a row per part, in the order of ``ids``.
        ids: sorted.
        grid: the grid size, or None if there is no part.

    Raises:
        InputError: if the folder holds no store, or a file of it is damaged; it is named.
        VersionMismatch: if it was made by another feature version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        table, metadata = layout.read_manifest(folder / layout.MANIFEST)
        self.grid: int | None = metadata.get("grid")
        self.manifest: pd.DataFrame = table.to_pandas()
        self.ids: list[str] = table.column("model_id").to_pylist()
        self._content: list[str] = table.column("content").to_pylist()
        self._places: list[tuple[int, int]] = list(
            zip(
                table.column("shard").to_pylist(), table.column("position").to_pylist(), strict=True
            )
        )
        self._row = {model_id: row for row, model_id in enumerate(self.ids)}
        self._shards: dict[int, _Shard] = {}
        self._checked: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        # A mapped file does not travel to another process; it is opened there again.
        # Columns are the manifest's own: apart from it they would travel twice.
        state = self.__dict__ | {"_shards": {}, "_checked": set()}
        state.pop("_columns", None)
        return state

    @cached_property
    def _columns(self) -> dict[str, Any]:
        # A row of a data frame is slow to take: half of the time of loading a part.
        return {name: self.manifest[name].array for name in self.manifest.columns}

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, model_id: object) -> bool:
        return model_id in self._row

    @property
    def rejects(self) -> pd.DataFrame:
        """The files that did not make it: path, reason, message; all text."""
        rows = layout.read_rejects(self.folder / layout.REJECTS)
        return pd.DataFrame(rows, columns=list(layout.REJECT_COLUMNS), dtype="str")

    @property
    def signatures(self) -> NDArray[np.float64]:
        """float64 (N, k), the geometry signature of each part in the order of ``ids``."""
        if not self.ids:
            return np.zeros((0, 0))
        return np.stack(self.manifest["signature"].tolist()).astype(np.float64)

    def content(self, model_id: str) -> str:
        """The SHA-256 of a part's arrays: the key of everything that follows from them."""
        return self._content[self._find(model_id)]

    def facts(self, model_id: str) -> PartFacts:
        """What the manifest knows of a part."""
        number = self._find(model_id)
        row = {name: column[number] for name, column in self._columns.items()}
        low, high = (
            (float(row[f"box_{end}_x"]), float(row[f"box_{end}_y"]), float(row[f"box_{end}_z"]))
            for end in ("min", "max")
        )
        return PartFacts(
            unit=row["unit"],
            box_min=low,
            box_max=high,
            volume=float(row["volume"]),
            area=float(row["area"]),
            solids=int(row["solids"]),
            seams=int(row["seams"]),
            degenerate=int(row["degenerate"]),
            free_edges=int(row["free_edges"]),
            nonmanifold=int(row["nonmanifold"]),
            free_faces=int(row["free_faces"]),
            loose_edges=int(row["loose_edges"]),
            healed=bool(row["healed"]),
            signature=np.array(row["signature"], dtype=np.float64),
        )

    def load(self, model_id: str) -> PartArrays:
        """A part by its id.

        Raises:
            InputError: if there is none of that id, or its shard is missing or damaged.
        """
        row = self._find(model_id)
        number, position = self._places[row]
        if number not in self._shards:
            self._shards[number] = _Shard(self.folder / layout.shard_name(number))
        shard = self._shards[number]
        arrays = PartArrays(**shard.arrays(model_id, position), facts=self.facts(model_id))
        if model_id not in self._checked:
            if content_hash(arrays) != self._content[row]:
                raise InputError(
                    f"{shard.path}: the bytes of part {model_id!r} are not those that were "
                    "written; the file is damaged, run the extraction again"
                )
            self._checked.add(model_id)
        return arrays

    def load_many(self, ids: Iterable[str]) -> dict[str, PartArrays]:
        """Parts by id, in the order asked for."""
        return {model_id: self.load(model_id) for model_id in ids}

    def _find(self, model_id: str) -> int:
        try:
            return self._row[model_id]
        except KeyError:
            raise InputError(f"{self.folder}: holds no part {model_id!r}") from None


class _Shard:
    """One mapped shard file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = self._guarded(safe_open, path, framework="numpy")
        text = (self._file.metadata() or {}).get(layout.METADATA_KEY)
        metadata = layout.unpack_metadata(text, path)
        self._ids: list[str] = metadata["ids"]
        self._grid: int = metadata["grid"]
        self._offsets: dict[str, list[int]] = {
            rows: self._guarded(self._file.get_tensor, f"{rows}_offsets").tolist()
            for rows in ("face", "edge")
        }
        self._slices = {
            item.name: self._guarded(self._file.get_slice, item.name) for item in FIELDS
        }

    def arrays(self, model_id: str, position: int) -> dict[str, NDArray[Any]]:
        """The fields of the part that the manifest says is at ``position``."""
        if not (position < len(self._ids) and self._ids[position] == model_id):
            raise InputError(
                f"{self.path}: part {model_id!r} is not where the manifest says; the two are of "
                "different runs, run the extraction again"
            )
        found = {}
        for item in FIELDS:
            begin, end = self._offsets[item.rows][position : position + 2]
            if begin == end:  # safetensors refuses an empty slice
                found[item.name] = np.empty(item.shape(0, self._grid), dtype=item.dtype)
                continue
            found[item.name] = self._guarded(self._slices[item.name].__getitem__, slice(begin, end))
        return found

    def _guarded(self, read: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return read(*args, **kwargs)
        except (OSError, SafetensorError, IndexError, ValueError) as error:
            raise InputError(
                f"{self.path}: cannot be read ({error}); run the extraction again"
            ) from None
