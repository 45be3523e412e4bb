"""How much does an embedding move when a file lists its faces in another order?

    PYTHONPATH=src python -m benchmarks.face_order [--weights data/model/best.safetensors]
        [--graphs data/graphs] [--orders 4]

RoPE runs over the order of the faces, so the encoder sees it. Every part is embedded in its file's
order and in random ones. Printed and written to results/face_order.json: the cosine between the
orders, that to the nearest other part, and how often a reordered part still finds itself first
among all parts in their own order.
"""

import argparse
import json
from pathlib import Path

import torch
from torch.nn.functional import normalize

from brepfind.files import write_json
from brepfind.graphs.collate import collate
from brepfind.graphs.pairwise import pairwise
from brepfind.graphs.store import GraphStore
from brepfind.models.face_order import random_order, reorder_faces
from brepfind.retrieval.model import load_trained

RESULTS = Path(__file__).parent / "results" / "face_order.json"
AT_ONCE = 16


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, default=Path("data/model/best.safetensors"))
    parser.add_argument("--graphs", type=Path, default=Path("data/graphs"))
    parser.add_argument("--orders", type=int, default=4, help="random orders per part")
    args = parser.parse_args()
    model = load_trained(args.weights).model.eval()
    store = GraphStore(args.graphs)
    own, other = [], []
    generator = torch.Generator().manual_seed(0)
    for start in range(0, len(store.ids), AT_ONCE):
        parts = [store.load(model_id) for model_id in store.ids[start : start + AT_ONCE]]
        batch = collate(parts, [pairwise(part) for part in parts])
        own.append(model.embed_parts(batch).projected)
        orders = [random_order(batch.face_counts, generator) for _ in range(args.orders)]
        turned = [model.embed_parts(reorder_faces(batch, order)).projected for order in orders]
        other.append(torch.stack(turned, dim=1))
    # float64: near-twins differ in the eighth digit.
    rows = normalize(torch.cat(own).double(), dim=-1)
    turned = normalize(torch.cat(other).double(), dim=-1)
    scores = turned @ rows.T  # (N, orders, N)
    same = scores.diagonal(dim1=0, dim2=2).T  # (N, orders)
    nearest = (rows @ rows.T).fill_diagonal_(-1.0).max(1).values
    result = {
        "parts": len(rows),
        "orders": args.orders,
        "cosine_between_orders": {
            "median": round(float(same.median()), 4),
            "worst": round(float(same.min()), 4),
        },
        "cosine_to_the_nearest_other_part_median": round(float(nearest.median()), 4),
        "finds_itself": round(
            float((torch.arange(len(rows)) == scores.argmax(2).T).double().mean()), 4
        ),
    }
    write_json(RESULTS, result)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
