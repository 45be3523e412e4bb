"""The same outcomes from a Dask cluster, whatever happens to its workers."""

import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import psutil
import pytest
from distributed import LocalCluster

from brepfind.cad.cluster import work_on_cluster
from brepfind.cad.extract import ExtractConfig
from brepfind.cad.pool import Outcome, extract_many
from brepfind.errors import InputError
from tests.cad.misbehaving import work
from tests.cad.test_pool import ZOO, config

NAMES = [
    "ok_box.step",
    "sphere.step",
    "html_404.step",
    "spline_face.step",
    "one_face.step",
    "two_solids_apart.step",
    "unit_inch.step",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with (
        dask.config.set({"distributed.worker.daemon": False}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as started,
    ):
        yield started


def extract(where: ExtractConfig, names: list[str]) -> Iterator[Outcome]:
    yield from extract_many([(name, ZOO / name) for name in names], where, workers=2)


def content(outcomes: list[Outcome]) -> dict[str, tuple[list[bytes], str]]:
    found = {o.key: ([pickle.dumps(part) for part in o.parts], str(o.reject)) for o in outcomes}
    assert len(found) == len(outcomes)
    return found


@pytest.mark.timeout(180)
def test_a_cluster_gives_the_same_bytes_and_survives_the_death_of_a_worker(
    cluster: LocalCluster,
) -> None:
    local = content(list(extract(config(), NAMES)))
    # Each file several times, so that the killed worker has some of them.
    files = [(f"{copy} {name}", ZOO / name) for copy in range(4) for name in NAMES[:5]]
    files += [(name, ZOO / name) for name in NAMES]
    where = config(cluster=cluster.scheduler_address)
    outcomes = []
    for outcome in extract_many(files, where, workers=1):
        outcomes.append(outcome)
        if len(outcomes) == 3:
            os.kill(cluster.workers[0].pid, signal.SIGKILL)
    found = content(outcomes)
    assert sorted(found) == sorted(key for key, _ in files)
    assert {key: value for key, value in found.items() if key in local} == local
    assert all(value == local[key[2:]] for key, value in found.items() if key not in local)


@pytest.mark.timeout(120)
def test_a_file_is_as_isolated_as_at_home(cluster: LocalCluster, tmp_path: Path) -> None:
    files = []
    for number, word in enumerate(["fine", "stuck", "segv", "slow once", "fine"]):
        path = tmp_path / f"{number} {word}"
        path.write_text(word)
        files.append((word, path))
    where = config(cluster=cluster.scheduler_address, timeout_s=1.5)
    found = [(o.key, str(o.reject)) for o in work_on_cluster(files, work, where)]
    assert sorted(found) == [
        ("fine", "None"),
        ("fine", "None"),
        ("segv", "crash: Open CASCADE crashed on it (SIGSEGV)"),
        ("slow once", "None"),
        ("stuck", "timeout: took longer than 1.5 s"),
    ]


@pytest.mark.timeout(120)
def test_results_are_lost_with_the_worker_that_holds_them(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    files = [(str(number), tmp_path / str(number)) for number in range(10)]
    for _, path in files:
        path.write_text("a second")
    outcomes = []
    for outcome in work_on_cluster(files, work, config(cluster=cluster.scheduler_address)):
        outcomes.append(outcome)
        if len(outcomes) == 3:
            time.sleep(3)  # while results gather on the workers, and nobody takes them
            os.kill(cluster.workers[1].pid, signal.SIGKILL)
            time.sleep(0.5)  # until the scheduler has noticed; they are not done again yet
    assert sorted((o.key, o.reject) for o in outcomes) == sorted((key, None) for key, _ in files)


@pytest.mark.timeout(120)
def test_a_scheduler_that_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "slow"
    path.write_text("slow")
    with (
        dask.config.set({"distributed.worker.daemon": False}),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as started,
    ):
        where = config(cluster=started.scheduler_address)
        threading.Timer(4, started.close).start()
        with pytest.raises(InputError, match=r"the scheduler at .* was lost; run again"):
            list(work_on_cluster([("slow", path)], work, where))


@pytest.mark.timeout(120)
def test_a_cluster_is_left_without_processes_of_ours(cluster: LocalCluster) -> None:
    where = config(cluster=cluster.scheduler_address)
    (outcome,) = extract(where, ["ok_box.step"])
    assert outcome.reject is None
    for nanny in cluster.workers.values():
        below = psutil.Process(nanny.pid).children(recursive=True)
        assert not [p for p in below if p.name() == "pebble_pool_worker"]
        assert len([p for p in below if p.children()]) == 0  # a fork server without workers


def test_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brepfind.cad.cluster._CONNECT_S", 0.5)
    with pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        list(extract(config(cluster="tcp://127.0.0.1:9"), ["ok_box.step"]))


def test_workers_that_may_have_no_children() -> None:
    with (
        dask.config.set({"distributed.worker.daemon": True}),  # Dask's own default
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as started,
        pytest.raises(InputError, match=r"DASK_DISTRIBUTED__WORKER__DAEMON=False"),
    ):
        list(extract(config(cluster=started.scheduler_address), ["ok_box.step"]))


@pytest.mark.parametrize("address", ["", "here", "tcp://", "http://x:1"])
def test_an_address_is_checked(address: str) -> None:
    with pytest.raises(ValueError, match="cluster"):
        config(cluster=address)


def test_a_file_that_a_worker_does_not_see(cluster: LocalCluster) -> None:
    # A path that only this process has stands for one that only this machine has.
    mine = Path(f"/proc/self/task/{os.getpid()}/root{ZOO / 'ok_box.step'}")
    assert mine.exists()
    where = config(cluster=cluster.scheduler_address)
    with pytest.raises(InputError, match="a Dask worker does not see"):
        list(extract_many([("box", mine)], where, workers=1))
