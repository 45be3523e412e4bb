"""Test parts whose shape was seen before: in training, or in pretraining.

What an encoder was pretrained on is known by the signatures of its parts, kept beside its
checkpoint: ``name.ckpt`` has ``name.signatures.npy``, float64 (M, k), written with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from brepfind.cad.signature import SIGNATURE_SCALE
from brepfind.errors import InputError
from brepfind.files import atomic_path
from brepfind.findings import Finding, Verdict, at_most
from brepfind.graphs.twins import twin_groups


def leaked(
    ids: Sequence[str], signatures: NDArray[np.float64], seen: NDArray[np.float64]
) -> list[str]:
    """The parts that have a twin among others, by the one notion of twin.

    Args:
        ids: of P parts. signatures: float64 (P, k). seen: float64 (M, k), of the others.
    """
    if not len(signatures) or not len(seen):
        return []
    groups = twin_groups(np.concatenate([signatures, seen]))
    known = set(groups[len(signatures) :].tolist())
    return [one for one, group in zip(ids, groups.tolist(), strict=False) if group in known]


def leak_findings(
    ids: Sequence[str],
    signatures: NDArray[np.float64],
    seen: Mapping[str, NDArray[np.float64]],
    *,
    otherwise: Verdict = "failed",
    prefix: str = "evaluate",
) -> list[Finding]:
    """One finding per place where test parts may have been seen; each asks for none.

    Args:
        seen: signatures by place, such as ``train`` and ``pretraining``.
        otherwise: ``warning`` where the user's own split may leak.
    """
    findings = []
    for place, others in seen.items():
        found = leaked(ids, signatures, others)
        named = ", ".join(found[:3]) + (" and more" if len(found) > 3 else "")
        findings.append(
            at_most(
                f"{prefix}.twins_in_{place}",
                len(found),
                0,
                advice=f"test parts have a twin in {place} ({named}): R@K would measure memory; "
                "move them to train, or leave out what has seen them",
                otherwise=otherwise,
            )
        )
    return findings


def signatures_file(checkpoint: Path) -> Path:
    """Where the signatures of what a checkpoint was pretrained on lie."""
    return checkpoint.with_suffix(".signatures.npy")


def write_signatures(checkpoint: Path, signatures: NDArray[np.float64]) -> None:
    """Write them beside the checkpoint, each once and in a fixed order."""
    with atomic_path(signatures_file(checkpoint)) as aside, aside.open("wb") as file:
        np.save(file, np.unique(signatures, axis=0), allow_pickle=False)


def read_signatures(checkpoint: Path) -> NDArray[np.float64] | None:
    """Signatures of what a checkpoint was pretrained on, or None if nobody kept them.

    Raises:
        InputError: if the file cannot be read, or holds signatures of another kind.
    """
    file = signatures_file(checkpoint)
    if not file.is_file():
        return None
    try:
        rows = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{file}: is not a plain .npy file ({error})") from error
    if rows.ndim != 2 or rows.shape[1] != len(SIGNATURE_SCALE) or rows.dtype != np.float64:
        raise InputError(
            f"{file}: holds {rows.dtype} {rows.shape}, a signature is {len(SIGNATURE_SCALE)} "
            "float64 numbers; pretrain again with `make pretrain`"
        )
    return np.asarray(rows, np.float64)


def unknown_pretraining(checkpoint: str, prefix: str = "evaluate") -> Finding:
    """The warning for a checkpoint of which nobody says what it was pretrained on."""
    return Finding(
        name=f"{prefix}.twins_in_pretraining",
        value="unknown",
        limit="<= 0",
        verdict="warning",
        advice=f"nobody kept what {checkpoint} was pretrained on: test parts may have been seen; "
        "put their signatures beside it (make pretrain does), or start from scratch",
    )
