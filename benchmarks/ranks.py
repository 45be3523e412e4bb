"""Ranks of 100,000 captions among 100,000 parts and back, beside the bare matrix products.

    python benchmarks/ranks.py [--n 100000] [--dim 256] [--out benchmarks/results/ranks.json]

Bare products (NumPy's, block by block into one buffer; the fastest of some block sizes and ways to
use the cores) and ranks are taken in turns, a twentieth of the queries at a time, in one process:
whatever else the machine does slows both. Two galleries: *untrained* (random rows, where every
score lies near every threshold: the hardest) and *trained* (a caption near its part).
``time_over_matmul`` and ``peak_gb`` are those of the worse one; the set-up of the job is included.

Beside it, on as much as fits: faiss's exact search for the 50 best (one direction, R@K only, ties
as they come) and the plain way (the whole score matrix, one direction, strict comparison).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

from brepfind.files import write_json
from brepfind.metrics.counting import RankJob
from brepfind.metrics.ranks import summarise
from brepfind.metrics.relevance import Relevance

PARTS = 20
CORES = len(os.sched_getaffinity(0))
BARE_BLOCKS = ((512, 2040), (1024, 2040), (2048, 4096))


def rows(n: int, dim: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    items = unit(rng.standard_normal((n, dim), np.float32))
    queries = rng.standard_normal((n, dim), np.float32)
    if kind == "trained":
        queries *= 1.0 / np.sqrt(dim)
        queries += items
    return unit(queries), items


def unit(values: np.ndarray) -> np.ndarray:
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values


def bare(
    queries: np.ndarray, items: np.ndarray, block: tuple[int, int], workers: int, out: np.ndarray
) -> float:
    """Seconds of the products alone, by ``workers`` threads with a BLAS thread each, or by one
    thread with all of the BLAS threads.
    """
    start = time.perf_counter()
    if workers == 1:
        products(queries, items, block, out[0])
    else:
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
            shares = np.array_split(queries, workers)
            list(pool.map(products, shares, [items] * workers, [block] * workers, out))
    return time.perf_counter() - start


def products(
    queries: np.ndarray, items: np.ndarray, block: tuple[int, int], out: np.ndarray
) -> None:
    for a in range(0, len(queries), block[0]):
        q = queries[a : a + block[0]]
        for c in range(0, len(items), block[1]):
            i = items[c : c + block[1]]
            np.matmul(q, i.T, out=out[: len(q) * len(i)].reshape(len(q), len(i)))


def ours(n: int, dim: int, kind: str) -> dict[str, Any]:
    queries, items = rows(n, dim, kind)
    own = np.arange(n)
    out = buffers()
    tried = {
        way: min(bare(queries[:4096], items[:16384], *way, out) for _ in range(3))
        for way in product(BARE_BLOCKS, {1, CORES})
    }
    way = min(tried, key=tried.__getitem__)
    start = time.perf_counter()
    job = RankJob(queries, items, Relevance.from_groups(own, own))
    setting_up = time.perf_counter() - start
    tallies, bare_seconds, ranks = None, [], []
    blocks = len(job.query_blocks)
    for part in range(PARTS):
        chosen = np.concatenate([queries[a:b] for a, b in job.query_blocks[part::PARTS]])
        bare_seconds.append(bare(chosen, items, *way, out))
        start = time.perf_counter()
        found = job.run(part, PARTS)
        ranks.append(time.perf_counter() - start)
        tallies = found if tallies is None else tallies + found
    forward, backward = job.result(tallies)
    ratios = sorted(r / p for r, p in zip(ranks, bare_seconds, strict=True))
    return {
        "time_over_matmul": (setting_up + sum(ranks)) / sum(bare_seconds),
        "ratio_of_parts": {
            "median": statistics.median(ratios), "lowest": ratios[0], "highest": ratios[-1],
        },
        "seconds": setting_up + sum(ranks),
        "seconds_setting_up": setting_up,
        "seconds_bare": sum(bare_seconds),
        "bare_block": list(way[0]), "bare_workers": way[1],
        "query_blocks": blocks,
        "peak_gb": peak_gb(),
        "text_to_cad_R_at_1": summarise(forward)["R_at_1"],
        "cad_to_text_R_at_1": summarise(backward)["R_at_1"],
    }  # fmt: skip


def buffers() -> list[np.ndarray]:
    return [np.empty(max(a * b for a, b in BARE_BLOCKS), np.float32) for _ in range(CORES)]


def fastest(queries: np.ndarray, items: np.ndarray) -> float:
    return min(bare(queries, items, *way, buffers()) for way in product(BARE_BLOCKS, {1, CORES}))


def with_faiss(n: int, dim: int, k: int = 50, asked: int = 4096) -> dict[str, Any]:
    queries, items = rows(n, dim, "trained")
    index = faiss.IndexFlatIP(dim)
    index.add(items)
    bare_seconds = fastest(queries[:asked], items)
    start = time.perf_counter()
    index.search(queries[:asked], k)
    spent = time.perf_counter() - start
    return {
        "what": f"IndexFlatIP, {k} best of {n} for {asked} queries, one direction",
        "time_over_matmul": spent / bare_seconds,
        "peak_gb": peak_gb(),
    }


def full_matrix(n: int, dim: int) -> dict[str, Any]:
    queries, items = rows(n, dim, "trained")
    bare_seconds = fastest(queries, items)
    start = time.perf_counter()
    scores = queries @ items.T
    ranks = 1 + (scores > np.diagonal(scores)[:, None]).sum(axis=1)
    spent = time.perf_counter() - start
    assert ranks.min() >= 1
    return {
        "what": f"the whole matrix of {n} x {n}, one direction; 100,000 would take 40 GB and more",
        "time_over_matmul": spent / bare_seconds,
        "peak_gb": peak_gb(),
    }


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def alone(function: Any, *arguments: Any) -> dict[str, Any]:
    """In a process of its own, so that the peak of its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/ranks.json"))
    arguments = parser.parse_args()
    n, dim = arguments.n, arguments.dim
    kinds = {kind: alone(ours, n, dim, kind) for kind in ("untrained", "trained")}
    result = {
        "n": n,
        "dim": dim,
        "time_over_matmul": max(kind["time_over_matmul"] for kind in kinds.values()),
        "peak_gb": max(kind["peak_gb"] for kind in kinds.values()),
        **kinds,
        "faiss": alone(with_faiss, n, dim),
        "full_matrix": alone(full_matrix, min(n, 16_384), dim),
    }
    write_json(arguments.out, result)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
