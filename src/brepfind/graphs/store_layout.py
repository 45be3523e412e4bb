"""How a graph store lies on disk: names, columns, metadata, the list of rejects."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brepfind.cad.arrays import FACTS_VERSION, FEATURE_VERSION, PartArrays
from brepfind.errors import InputError, VersionMismatch
from brepfind.files import unicode_text

MANIFEST = "manifest.parquet"
REJECTS = "rejects.csv"
REJECT_COLUMNS = ("path", "reason", "message")

# The one key of metadata that safetensors and parquet files carry here: canonical JSON. Several
# keys would do for readers, but safetensors writes them in random order.
METADATA_KEY = "brepfind"

MANIFEST_SCHEMA = pa.schema(
    [
        ("model_id", pa.string()),
        ("path", pa.string()),
        ("sha256", pa.string()),
        ("unit", pa.string()),
        *((f"box_{end}_{axis}", pa.float64()) for end in ("min", "max") for axis in "xyz"),
        ("faces", pa.int32()),
        ("edges", pa.int32()),
        ("volume", pa.float64()),
        ("area", pa.float64()),
        ("solids", pa.int32()),
        ("seams", pa.int32()),
        ("degenerate", pa.int32()),
        ("free_edges", pa.int32()),
        ("nonmanifold", pa.int32()),
        ("free_faces", pa.int32()),
        ("loose_edges", pa.int32()),
        ("healed", pa.bool_()),
        ("signature", pa.list_(pa.float64())),
        ("content", pa.string()),
        ("shard", pa.int32()),
        ("position", pa.int32()),
    ]
)


def shard_of(model_id: str, shards: int) -> int:
    """The shard a part lies in; it depends on the id and the number of shards only."""
    return int.from_bytes(hashlib.sha256(unicode_text(model_id).encode()).digest()[:8], "big") % (
        shards
    )


def shard_name(shard: int) -> str:
    """The file name of a shard."""
    return f"shard-{shard:05d}.safetensors"


def facts_row(arrays: PartArrays) -> dict[str, Any]:
    """A part's facts and counts as columns of the manifest."""
    facts = arrays.facts
    row: dict[str, Any] = {
        f"box_{end}_{axis}": float(value)
        for end, corner in (("min", facts.box_min), ("max", facts.box_max))
        for axis, value in zip("xyz", corner, strict=True)
    }
    return row | {
        "unit": facts.unit,
        "faces": arrays.n_faces,
        "edges": arrays.n_edges,
        "volume": float(facts.volume),
        "area": float(facts.area),
        "solids": facts.solids,
        "seams": facts.seams,
        "degenerate": facts.degenerate,
        "free_edges": facts.free_edges,
        "nonmanifold": facts.nonmanifold,
        "free_faces": facts.free_faces,
        "loose_edges": facts.loose_edges,
        "healed": bool(facts.healed),
        "signature": [float(value) for value in facts.signature],
    }


def pack_metadata(**values: Any) -> dict[str, str]:
    """Metadata for a file, both versions stamped into it."""
    stamped = {"feature_version": FEATURE_VERSION, "facts_version": FACTS_VERSION, **values}
    text = json.dumps(stamped, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return {METADATA_KEY: text}


def unpack_metadata(text: str | None, path: Path) -> dict[str, Any]:
    """What :func:`pack_metadata` packed.

    Raises:
        InputError: if the file has none, or it cannot be read.
        VersionMismatch: if another version of features or facts is stamped.
    """
    if text is None:
        raise InputError(f"{path}: is not of a brepfind graph store (no {METADATA_KEY!r} metadata)")
    try:
        metadata: dict[str, Any] = json.loads(text)
        features = metadata["feature_version"]
        facts = metadata.get("facts_version", 1)  # stores of before it was stamped
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: its metadata cannot be read ({error})") from None
    for kind, found, ours in (
        ("feature", features, FEATURE_VERSION),
        ("facts", facts, FACTS_VERSION),
    ):
        if found != ours:
            raise VersionMismatch(
                f"{path}: was made with {kind} version {found}, this brepfind has {ours}; "
                "make it again with `dvc repro --force extract`"
            )
    return metadata


def read_manifest(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """The manifest and its metadata; errors as :func:`unpack_metadata`."""
    if not path.exists():
        raise InputError(f"{path.parent}: holds no graph store (no {MANIFEST}); run the extraction")
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read ({error}); run the extraction again") from None
    raw = (table.schema.metadata or {}).get(METADATA_KEY.encode())
    metadata = unpack_metadata(raw.decode() if raw is not None else None, path)
    missing = [name for name in MANIFEST_SCHEMA.names if name not in table.column_names]
    if missing:
        raise InputError(f"{path}: lacks the columns {', '.join(missing)}")
    return table, metadata


def rejects_text(rows: Iterable[tuple[str, str, str]]) -> str:
    """The rejects as CSV, sorted.

    Everything is quoted: a lone carriage return would be left bare otherwise, and split its row.
    """
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([REJECT_COLUMNS, *sorted(rows)])
    return text.getvalue()


def read_rejects(path: Path) -> list[list[str]]:
    """The rows of a list of rejects.

    Raises:
        InputError: if it is missing or damaged.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({error}); run the extraction again") from None
    if not rows or tuple(rows[0]) != REJECT_COLUMNS:
        raise InputError(f"{path}: must begin with the columns {', '.join(REJECT_COLUMNS)}")
    if any(len(row) != len(REJECT_COLUMNS) for row in rows):
        raise InputError(f"{path}: a row has too few or too many columns")
    return rows[1:]
