"""Test parts whose shape was seen before: in training, or in pretraining.

What an encoder was pretrained on is known by the signatures of its parts, kept beside its
checkpoint: ``name.ckpt`` has ``name.signatures.safetensors``, float64 (M, k), stamped with
the version of what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from brepfind.cad.arrays import FACTS_VERSION
from brepfind.cad.signature import SIGNATURE_SIZE
from brepfind.errors import InputError, VersionMismatch
from brepfind.files import write_bytes
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
    return checkpoint.with_suffix(".signatures.safetensors")


def write_signatures(checkpoint: Path, signatures: NDArray[np.float64]) -> None:
    """Write them beside the checkpoint, each once and in a fixed order."""
    rows = np.unique(np.asarray(signatures, np.float64), axis=0)
    content = save({"signatures": rows}, metadata={"facts_version": str(FACTS_VERSION)})
    write_bytes(signatures_file(checkpoint), content)


def read_signatures(checkpoint: Path) -> NDArray[np.float64] | None:
    """Signatures of what a checkpoint was pretrained on, or None if nobody kept them.

    Raises:
        InputError: if the file cannot be read.
        VersionMismatch: if its signatures are measured otherwise than today's: they match nothing,
            and would call every test part new.
    """
    file = signatures_file(checkpoint)
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="np") as opened:
            version = (opened.metadata() or {}).get("facts_version")
            rows = opened.get_tensor("signatures")
    except (SafetensorError, OSError) as error:
        raise InputError(f"{file}: is not a whole file of signatures ({error})") from error
    if version != str(FACTS_VERSION) or rows.shape[1:] != (SIGNATURE_SIZE,):
        raise VersionMismatch(
            f"{file}: signatures of version {version} and shape {rows.shape}, this is version "
            f"{FACTS_VERSION} with {SIGNATURE_SIZE} numbers; run `make pretrained-signatures`"
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
