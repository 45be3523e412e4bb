"""Build the sample's STEP files in several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from brepfind.corpus.sample.families import FAMILY_BY_NAME
from brepfind.corpus.sample.family import Spec
from brepfind.corpus.sample.shapes import write_step
from brepfind.files import atomic_path
from brepfind.log import progress

# Parts per task of a worker: enough to spare the pool's own work, few enough for an even load.
CHUNK = 4


def build_part(spec: Spec, path: Path) -> None:
    """Build one part and write its STEP file, whole or not at all."""
    family = FAMILY_BY_NAME[spec.family]
    shape = family.build(spec.facts)
    with atomic_path(path) as aside:
        write_step(shape, aside, spec.model_id, inch=family.words(spec.facts).inch)


def build_parts(parts: Sequence[tuple[Spec, Path]], workers: int) -> None:
    """Build many parts; each file's bytes depend on its own spec alone.

    Raises:
        RuntimeError: if a part cannot be built, naming it and its facts: its table is wrong.
    """
    for folder in {path.parent for _, path in parts}:
        folder.mkdir(parents=True, exist_ok=True)
    chunks = [parts[i : i + CHUNK] for i in range(0, len(parts), CHUNK)]
    with progress("Making parts", len(parts)) as bar:
        if workers == 1:
            for chunk in chunks:
                bar.advance(_build(chunk))
            return
        # Not a plain fork: the CAD kernel's threads do not survive one.
        context = multiprocessing.get_context("forkserver")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            futures = [pool.submit(_build, chunk) for chunk in chunks]
            try:
                for future in as_completed(futures):
                    bar.advance(future.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _build(parts: Sequence[tuple[Spec, Path]]) -> int:
    for spec, path in parts:
        try:
            build_part(spec, path)
        except Exception as error:
            raise RuntimeError(
                f"sample part {spec.model_id} with {dict(spec.facts)} cannot be built: {error}"
            ) from error
    return len(parts)
