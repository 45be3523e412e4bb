"""Files to a store: every file in the account, the same bytes however it was made, and only new
content costs anything. Real files, real processes.
"""

import csv
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from brepfind.cad.extract import ExtractConfig
from brepfind.cad.pool import Outcome, extract_many, work_on
from brepfind.cad.version import extractor_version
from brepfind.errors import InputError, RejectedPart
from brepfind.graphs import extraction
from brepfind.graphs.extraction import Tally, extract_store, find_step_files
from brepfind.graphs.extraction_cache import ExtractionCache
from brepfind.graphs.store import GraphStore
from tests.cad import misbehaving

ZOO = Path(__file__).parents[1] / "fixtures" / "cad" / "zoo"
BOX, SPHERE, CONE = (ZOO / f"{name}.step" for name in ("ok_box", "sphere", "cone_apex"))
TWO = ZOO / "two_solids_apart.step"
PAGE = ZOO / "html_404.step"


def config(**changes: object) -> ExtractConfig:
    settings: dict[str, object] = {
        "grid": 5,
        "max_faces": 100,
        "multi_solid": "merge",
        "timeout_s": 30.0,
        "memory_gb": 4.0,
        "max_reject_rate": 1.0,
        "shards": 3,
    }
    return ExtractConfig(**(settings | changes))  # type: ignore[arg-type]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    for name, source in (
        ("box.step", BOX),
        ("a/box.step", SPHERE),
        ("b/box.step", CONE),
        ("two.stp", TWO),
        ("page.step", PAGE),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / name)
    return folder


@pytest.fixture
def worked_on(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that really went to a process, counted at its door and not by what we say of it."""
    seen: list[str] = []

    def watched(
        files: Sequence[tuple[str, Path]], where: ExtractConfig, workers: int
    ) -> Iterator[Outcome]:
        seen.extend(key for key, _ in files)
        return extract_many(files, where, workers)

    monkeypatch.setattr(extraction, "extract_many", watched)
    return seen


def work_on_words(
    files: Sequence[tuple[str, Path]], where: ExtractConfig, workers: int
) -> Iterator[Outcome]:
    return work_on(files, misbehaving.work, where, workers)


def store_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def rejects(folder: Path) -> dict[str, str]:
    return dict(zip(*GraphStore(folder).rejects[["path", "reason"]].values.T, strict=True))


def extract(raw: Path, out: Path, cache: ExtractionCache | None = None, **changes: object) -> Tally:
    settings = config(**changes)
    return extract_store(find_step_files([raw]), out, settings, workers=2, cache=cache)


# The account -------------------------------------------------------------------------------------


def test_every_file_is_accepted_or_rejected_and_equal_stems_never_meet(
    raw: Path, tmp_path: Path
) -> None:
    tally = extract(raw, tmp_path / "out")
    assert (tally.files, tally.accepted, tally.rejected, tally.graphs) == (5, 4, 1, 4)
    store = GraphStore(tmp_path / "out")
    assert store.ids == ["a/box.step", "b/box.step", "box.step", "two.stp"]
    assert [store.load(name).n_faces for name in store.ids] == [2, 2, 6, 12]
    assert rejects(tmp_path / "out") == {"page.step": "unreadable"}


def test_no_file_at_all_is_an_empty_store(tmp_path: Path) -> None:
    assert extract_store([], tmp_path / "out", config(), workers=2) == Tally()
    assert GraphStore(tmp_path / "out").ids == []


def test_all_rejected_is_a_store_of_reasons(tmp_path: Path) -> None:
    files = [(name, name, ZOO / name) for name in ("html_404.step", "empty_0_bytes.step", "none")]
    tally = extract_store(files, tmp_path / "out", config(), workers=2)
    assert (tally.accepted, tally.rejected, tally.graphs) == (0, 3, 0)
    assert rejects(tmp_path / "out") == {
        "html_404.step": "unreadable",
        "empty_0_bytes.step": "unreadable",
        "none": "missing",
    }


def test_split_gives_each_solid_an_id_in_the_files_order(raw: Path, tmp_path: Path) -> None:
    tally = extract(raw, tmp_path / "out", multi_solid="split")
    assert (tally.files, tally.accepted, tally.graphs) == (5, 4, 5)
    store = GraphStore(tmp_path / "out")
    assert [name for name in store.ids if name.startswith("two")] == ["two.stp#0", "two.stp#1"]
    first, second = (store.load(f"two.stp#{number}") for number in (0, 1))
    assert first.n_faces == second.n_faces == 6
    assert first.facts.solids == second.facts.solids == 1
    extract(raw, tmp_path / "merged")
    merged = GraphStore(tmp_path / "merged").load("two.stp")
    # Merged, the first solid's faces come first.
    np.testing.assert_array_equal(merged.face_type, np.r_[first.face_type, second.face_type])
    low = np.minimum(first.facts.box_min, second.facts.box_min)
    np.testing.assert_allclose(merged.facts.box_min, low)
    assert merged.facts.volume == pytest.approx(first.facts.volume + second.facts.volume)
    assert first.facts.box_min != second.facts.box_min
    # In the file the solid at the origin stands first.
    assert first.facts.box_min < second.facts.box_min


def test_a_file_of_several_solids_is_in_whole_or_not_at_all(tmp_path: Path) -> None:
    files = [("two", "two", TWO)]
    settings = config(multi_solid="split", max_faces=5)
    tally = extract_store(files, tmp_path / "out", settings, workers=1)
    assert (tally.graphs, tally.rejected) == (0, 1)


HOSTILE = [
    '<b onload="x()">&amp;<b>.step',
    "'; DROP TABLE parts; --.step",
    'quo"te,comma.step',
    "line\nbreak\r.step",
    "\u202egnp.\u2066step.step",
    "[red]markup[bold].step",
    "=cmd|' calc'!A0.step",
    "$(touch hurt) `touch hurt`.step",
    f"{'long' * 60}.step",
    os.fsdecode(b"latin1-\xe9\xff.step"),
    "ボルト 🔩.step",
]


@pytest.mark.parametrize("source", [BOX, PAGE], ids=["accepted", "rejected"])
def test_names_are_data(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    monkeypatch.chdir(raw)
    for name in HOSTILE:
        shutil.copy(source, raw / name)
    tally = extract(raw, tmp_path / "out")
    assert tally.accepted == (len(HOSTILE) if source is BOX else 0)
    expected = {name.encode("utf-8", "backslashreplace").decode() for name in HOSTILE}
    store = GraphStore(tmp_path / "out")
    with (tmp_path / "out" / "rejects.csv").open(encoding="utf-8", newline="") as file:
        listed = {row["path"] for row in csv.DictReader(file)}
    assert (set(store.manifest["path"]) if source is BOX else listed) == expected
    assert set(store.ids) == (expected if source is BOX else set())
    assert sorted(file.name for file in raw.iterdir()) == sorted(HOSTILE)  # nothing was run


# The same bytes ----------------------------------------------------------------------------------


def test_workers_and_order_leave_the_bytes_as_they_are(raw: Path, tmp_path: Path) -> None:
    files = find_step_files([raw])
    extract_store(files, tmp_path / "one", config(), workers=1)
    expected = store_bytes(tmp_path / "one")
    assert len(expected) == 2 + len(list((tmp_path / "one").glob("shard-*")))
    for number, order in enumerate((files, files[::-1], files[2:] + files[:2])):
        extract_store(order, tmp_path / f"two{number}", config(), workers=2)
        assert store_bytes(tmp_path / f"two{number}") == expected


# The cache ---------------------------------------------------------------------------------------


def cache_of(tmp_path: Path, **changes: object) -> ExtractionCache:
    return ExtractionCache(tmp_path / "cache", config(**changes))


def test_a_second_run_costs_nothing_and_gives_the_same_bytes(
    raw: Path, tmp_path: Path, worked_on: list[str]
) -> None:
    first = extract(raw, tmp_path / "first", cache_of(tmp_path))
    assert (first.extracted, first.cached, len(worked_on)) == (5, 0, 5)
    worked_on.clear()
    second = extract(raw, tmp_path / "second", cache_of(tmp_path))
    assert (second.extracted, second.cached, worked_on) == (0, 5, [])
    assert (second.accepted, second.rejected, second.graphs) == (4, 1, 4)
    extract(raw, tmp_path / "without")
    assert store_bytes(tmp_path / "second") == store_bytes(tmp_path / "without")


def test_split_parts_are_kept_apart_and_in_order(raw: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        extract(raw, tmp_path / name, cache_of(tmp_path, multi_solid="split"), multi_solid="split")
    assert store_bytes(tmp_path / "first") == store_bytes(tmp_path / "second")


def test_one_new_file_costs_one_file(raw: Path, tmp_path: Path, worked_on: list[str]) -> None:
    extract(raw, tmp_path / "out", cache_of(tmp_path))
    worked_on.clear()
    shutil.copy(ZOO / "full_cylinder.step", raw / "new.step")
    tally = extract(raw, tmp_path / "out", cache_of(tmp_path))
    assert worked_on == ["new.step"]
    assert (tally.files, tally.accepted, tally.extracted, tally.cached) == (6, 5, 1, 5)


def test_changed_bytes_cost_that_file(raw: Path, tmp_path: Path, worked_on: list[str]) -> None:
    extract(raw, tmp_path / "out", cache_of(tmp_path))
    worked_on.clear()
    shutil.copy(ZOO / "full_cylinder.step", raw / "a" / "box.step")
    extract(raw, tmp_path / "out", cache_of(tmp_path))
    assert worked_on == ["a/box.step"]
    assert GraphStore(tmp_path / "out").load("a/box.step").n_faces == 3


def test_a_new_name_costs_nothing(raw: Path, tmp_path: Path, worked_on: list[str]) -> None:
    extract(raw, tmp_path / "out", cache_of(tmp_path))
    worked_on.clear()
    (raw / "box.step").rename(raw / "renamed.step")
    (raw / "page.step").rename(raw / "still no part.step")
    extract(raw, tmp_path / "out", cache_of(tmp_path))
    assert worked_on == []
    assert "renamed.step" in GraphStore(tmp_path / "out").ids
    assert rejects(tmp_path / "out") == {"still no part.step": "unreadable"}


@pytest.mark.parametrize("change", [{"grid": 6}, {"max_faces": 99}, {"multi_solid": "reject"}])
def test_a_setting_that_can_change_a_result_costs_all(
    raw: Path, tmp_path: Path, worked_on: list[str], change: dict[str, object]
) -> None:
    extract(raw, tmp_path / "out", cache_of(tmp_path))
    worked_on.clear()
    extract(raw, tmp_path / "out", cache_of(tmp_path, **change), **change)
    assert len(worked_on) == 5


@pytest.mark.parametrize(
    "change",
    [{"timeout_s": 29.0}, {"memory_gb": 3.0}, {"shards": 2}, {"max_reject_rate": 0.5}],
    ids=lambda change: next(iter(change)),
)
def test_a_setting_that_cannot_costs_nothing(
    raw: Path, tmp_path: Path, worked_on: list[str], change: dict[str, object]
) -> None:
    extract(raw, tmp_path / "out", cache_of(tmp_path))
    worked_on.clear()
    extract(raw, tmp_path / "out", cache_of(tmp_path, **change), **change)
    assert worked_on == []


def test_another_extractor_costs_all(
    raw: Path, tmp_path: Path, worked_on: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    extract(raw, tmp_path / "out", cache_of(tmp_path))
    worked_on.clear()
    monkeypatch.setattr("brepfind.cad.version.FEATURE_VERSION", 10**6)
    extractor_version.cache_clear()
    extract(raw, tmp_path / "out", cache_of(tmp_path))
    extractor_version.cache_clear()
    assert len(worked_on) == 5


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "swap"])
def test_a_damaged_result_is_found_said_and_made_again(
    raw: Path,
    tmp_path: Path,
    worked_on: list[str],
    caplog: pytest.LogCaptureFixture,
    damage: str,
) -> None:
    extract(raw, tmp_path / "out", cache_of(tmp_path))
    expected = store_bytes(tmp_path / "out")
    worked_on.clear()
    entries = sorted((tmp_path / "cache").glob("*/*.result"), key=lambda path: path.stat().st_size)
    assert len(entries) == 5
    large = entries[-1]
    content = bytearray(large.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    large.write_bytes(
        {
            "flip": bytes(content),
            "cut": bytes(content[:-7]),
            "empty": b"",
            "swap": entries[0].read_bytes(),
        }[damage]
    )
    with caplog.at_level(logging.WARNING, logger="brepfind"):
        tally = extract(raw, tmp_path / "out", cache_of(tmp_path))
    assert (tally.damaged, tally.extracted, tally.cached) == (1, 1, 4)
    assert worked_on == ["two.stp"]
    assert store_bytes(tmp_path / "out") == expected
    worked_on.clear()
    assert extract(raw, tmp_path / "out", cache_of(tmp_path)).damaged == 0 and not worked_on


@pytest.mark.parametrize("reason", ["timeout", "memory", "crash", "missing"])
def test_what_the_machine_decided_is_not_kept(tmp_path: Path, reason: str) -> None:
    cache = cache_of(tmp_path)
    cache.put("ab" * 32, [], RejectedPart(reason, "said so"))
    assert cache.get("ab" * 32) is None
    cache.put("ab" * 32, [], RejectedPart("no_solid", "said so"))
    found = cache.get("ab" * 32)
    assert found is not None and str(found[1]) == "no_solid: said so"


def test_a_timeout_is_tried_again_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for word in ("stuck", "reject"):
        (tmp_path / word).write_text(word)
        files.append((word, word, tmp_path / word))
    monkeypatch.setattr(extraction, "extract_many", work_on_words)
    for extracted in (2, 1):
        tally = extract_store(files, tmp_path / "out", config(timeout_s=1.0), 2, cache_of(tmp_path))
        assert rejects(tmp_path / "out") == {"stuck": "timeout", "reject": "no_solid"}
        assert tally.extracted == extracted
    log = (tmp_path / "log").read_text().splitlines()
    began = [line.split()[3] for line in log if line.startswith("begin")]
    assert began.count("stuck") == 4 and began.count("reject") == 1  # twice in each run


def test_a_file_that_is_written_to_meanwhile_is_rejected_and_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "box.step"
    shutil.copy(BOX, file)
    settings, cache = config(), cache_of(tmp_path)

    def write() -> None:  # again and again, so that it happens between the two looks
        while not done.wait(0.001):
            os.utime(file)

    done = threading.Event()
    thread = threading.Thread(target=write)
    thread.start()
    try:
        tally = extract_store([("box", "box", file)], tmp_path / "out", settings, 1, cache)
    finally:
        done.set()
        thread.join()
    assert tally.rejected == 1 and rejects(tmp_path / "out") == {"box": "changed"}
    assert not list((tmp_path / "cache").glob("*/*"))


def test_ctrl_c_keeps_what_is_done(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def interrupted(
        files: Sequence[tuple[str, Path]], where: ExtractConfig, workers: int
    ) -> Iterator[Outcome]:
        for outcome in extract_many(files, where, workers):
            if len(seen) == 3:
                raise KeyboardInterrupt
            seen.append(outcome.key)
            yield outcome

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, logger="brepfind"):
        patch.setattr(extraction, "extract_many", interrupted)
        with pytest.raises(KeyboardInterrupt):
            extract(raw, tmp_path / "out", cache_of(tmp_path))
    assert not (tmp_path / "out" / "manifest.parquet").exists()  # half a store is none
    assert not list((tmp_path / "out").iterdir())
    tally = extract(raw, tmp_path / "out", cache_of(tmp_path))
    assert (tally.cached, tally.extracted) == (3, 2)


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    raw: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, logger="brepfind"):
        tally = extract(raw, tmp_path / "out", cache_of(tmp_path))
    assert (tally.accepted, tally.extracted) == (4, 5)


def test_the_cache_forgets_what_was_not_used_for_longest(tmp_path: Path) -> None:
    def put(digit: str, age_s: float) -> Path:
        cache.put(digit * 64, [], RejectedPart("empty", "x" * 1000))
        path = cache.path(digit * 64)
        os.utime(path, (time.time() - age_s, time.time() - age_s))
        return path

    cache = ExtractionCache(tmp_path / "cache", config(), limit_gb=2.5e-6)  # 2,500 bytes
    old, older, oldest = (put(digit, age) for digit, age in (("a", 100), ("b", 200), ("c", 300)))
    cache.trim()
    assert [path.exists() for path in (old, older, oldest)] == [True, True, False]
    # What this run uses stays, whatever it weighs.
    later = ExtractionCache(tmp_path / "cache", config(), limit_gb=1e-6)
    assert later.get("b" * 64) is not None
    later.trim()
    assert [path.exists() for path in (old, older)] == [False, True]


# Finding files -----------------------------------------------------------------------------------


def test_a_link_that_leads_nowhere_is_rejected_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "gone.step").symlink_to(tmp_path / "nowhere")
    (tmp_path / "raw" / "folder.step").mkdir()
    extract(tmp_path / "raw", tmp_path / "out")
    assert rejects(tmp_path / "out") == {"gone.step": "missing"}


def test_two_roots_with_the_same_names_are_refused(raw: Path) -> None:
    with pytest.raises(InputError, match=r"both have the id 'box\.step'; extract the folder above"):
        find_step_files([raw / "a", raw / "b"])
