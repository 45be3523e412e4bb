"""sanitize: a pretrained checkpoint to clean real-valued weights, every key accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brepfind.checkpoints import sanitize as checkpoints_sanitize
from brepfind.checkpoints.compare import Table
from brepfind.checkpoints.read import read_checkpoint
from brepfind.checkpoints.sanitize import SanitizeConfig
from brepfind.checkpoints.weights import save_weights
from brepfind.errors import CheckFailed, ParamsError
from brepfind.files import write_json
from brepfind.findings import require
from brepfind.log import get_logger
from brepfind.models.encoder import EncoderConfig, architecture
from brepfind.pipeline import paths
from brepfind.pipeline.context import StageContext

log = get_logger(__name__)


def sanitize(context: StageContext) -> Mapping[str, Any]:
    """Write ``data/weights``: the encoder's weights and ``report.json``.

    Halts on a tensor that is not finite, a complex tensor left over, or too low a coverage.
    """
    config = context.section("sanitize", SanitizeConfig)
    report_file = context.path(paths.WEIGHTS).with_name("report.json")
    if config.checkpoint is None:
        log.info("sanitize.checkpoint is null: the encoder starts from scratch")
        write_json(report_file, {"checkpoint": None})
        return {"from_scratch": 1, "coverage": 0.0}
    source = context.path(Path(config.checkpoint))
    if not source.resolve().is_relative_to(context.path(paths.PRETRAINED).resolve()):
        raise ParamsError(
            f"sanitize.checkpoint is {config.checkpoint!r}: put the file below {paths.PRETRAINED}, "
            "which DVC watches; elsewhere a changed checkpoint would leave the stage up to date"
        )
    checkpoint = read_checkpoint(source)
    # The account is written before anything can stop: it is the evidence.
    report = checkpoints_sanitize.examine(checkpoint, _table, min_coverage=config.min_coverage)
    write_json(context.evidence / "report.json", report.as_json())
    require(f"sanitize: {config.checkpoint} is not sound", report.findings)
    clean = checkpoints_sanitize.sanitize(checkpoint, _table, min_coverage=config.min_coverage)
    complex_left = [name for name, tensor in clean.tensors.items() if tensor.is_complex()]
    if complex_left:
        raise CheckFailed(f"sanitize: complex tensors are left: {', '.join(complex_left[:5])}")
    metadata = {"kind": "encoder", "source": report.source}
    save_weights(context.path(paths.WEIGHTS), clean.tensors, metadata)
    write_json(report_file, report.as_json())
    context.tracker.artifact(report_file, "sanitize")
    fates = Counter(key.fate for key in report.sources)
    return {
        "from_scratch": 0,
        "coverage": report.coverage,
        "source_tensors": len(report.sources),
        "target_tensors": len(report.targets),
        "sources": dict(sorted(fates.items())),
        "parameters": sum(t.numel() for name, t in clean.tensors.items() if t.is_floating_point()),
    }


def _table(shapes: Mapping[str, tuple[int, ...]]) -> Table:
    return architecture(EncoderConfig.from_shapes(shapes))
