"""How much does an embedding move when a file lists its faces in another order?

    PYTHONPATH=src python -m benchmarks.face_order [--weights data/model/best.safetensors]
        [--graphs data/graphs] [--orders 4]

Every part is embedded in its file's order and in random ones. Printed, and written to
results/face_order.json under what the weights were trained on (``train.face_order``), so that the
file shows what training on random orders buys.
"""

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from brepfind.files import read_json, write_json
from brepfind.graphs.dataset import PartReader
from brepfind.graphs.store import GraphStore
from brepfind.retrieval.face_order import order_moves
from brepfind.retrieval.model import load_trained

RESULTS = Path(__file__).parent / "results" / "face_order.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, default=Path("data/model/best.safetensors"))
    parser.add_argument("--graphs", type=Path, default=Path("data/graphs"))
    parser.add_argument("--orders", type=int, default=4, help="random orders per part")
    args = parser.parse_args()
    trained = load_trained(args.weights)
    store = GraphStore(args.graphs)
    with tempfile.TemporaryDirectory() as pairs:
        reader = PartReader(store, Path(pairs), keep=0)
        moves = order_moves(trained.model.eval(), reader, store.ids, orders=args.orders)
    numbers = {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in asdict(moves).items()
    }
    numbers["recall"] = round(float(trained.metadata["recall"]), 4)
    known = read_json(RESULTS) if RESULTS.exists() else {}
    write_json(RESULTS, {**known, trained.metadata.get("face_order", "file"): numbers})
    print(json.dumps(numbers, indent=2))


if __name__ == "__main__":
    main()
