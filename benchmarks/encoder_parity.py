"""Does the encoder give the numbers of the authors' code, at full size too?

    PYTHONPATH=src python -m benchmarks.encoder_parity FOLDER

FOLDER holds, for each size, ``brepformer_<size>.ckpt`` in the authors' layout,
``<size>_graph_<i>.bin`` in their graph layout, and ``expected_<size>.safetensors`` with
``graph_embedding`` (all graphs as one batch), ``graph_embedding_alone`` and ``face_tokens_<i>``.
Everything takes the way of ``brepfind encode``: read, sanitized, loaded strictly. Exit code 1 if
any number is off by more than 2e-5.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from brepfind.graphs.bins import read_bin
from brepfind.graphs.collate import collate
from brepfind.retrieval.encode import load_encoder

TOLERANCE = 2e-5


@torch.no_grad()
def check(folder: Path, size: str) -> float:
    """The largest absolute difference."""
    encoder = load_encoder(folder / f"brepformer_{size}.ckpt")
    expected = load_file(folder / f"expected_{size}.safetensors")
    paths = sorted(folder.glob(f"{size}_graph_*.bin"))
    graphs = [read_bin(path) for path in paths]
    together = encoder(collate([g.arrays for g in graphs], [g.pairs for g in graphs]))
    alone = [encoder(collate([g.arrays], [g.pairs])) for g in graphs]
    faces = torch.cat([expected[f"face_tokens_{i}"] for i in range(len(paths))])
    pairs = {
        "graphs, one batch": (together.graph, expected["graph_embedding"]),
        "graphs, alone": (torch.cat([o.graph for o in alone]), expected["graph_embedding_alone"]),
        "faces, one batch": (together.faces, faces),
        "faces, alone": (torch.cat([o.faces for o in alone]), faces),
    }
    worst = 0.0
    parameters = sum(p.numel() for p in encoder.parameters())
    print(f"{size}: {parameters:,} parameters")
    for what, (ours, theirs) in pairs.items():
        off = float((ours - theirs).abs().max())
        worst = off if not (off <= worst) else worst
        print(f"  {what}: {off:.1e}")
    return worst


def main() -> int:
    folder = Path(sys.argv[1])
    sizes = [path.stem.removeprefix("brepformer_") for path in folder.glob("brepformer_*.ckpt")]
    worst = [check(folder, size) for size in sorted(sizes)]
    return 0 if worst and all(off <= TOLERANCE for off in worst) else 1


if __name__ == "__main__":
    sys.exit(main())
