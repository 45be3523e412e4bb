import dataclasses
import hashlib
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brepfind.cad import arrays as cad_arrays
from brepfind.errors import InputError, RejectedPart, VersionMismatch
from brepfind.graphs import store_layout
from brepfind.graphs.schema import FIELDS
from brepfind.graphs.store import GraphStore, GraphStoreWriter
from brepfind.graphs.store_layout import shard_of

SHA = "0" * 64


def assert_same(a, b):
    for item in FIELDS:
        mine, other = getattr(a, item.name), getattr(b, item.name)
        assert mine.dtype == other.dtype and np.array_equal(mine, other), item.name
    for name in (field.name for field in dataclasses.fields(a.facts)):
        assert np.array_equal(getattr(a.facts, name), getattr(b.facts, name)), name


def write(folder, parts, rejects=(), shards=4):
    with GraphStoreWriter(folder, shards) as writer:
        for model_id, part in parts:
            writer.add(model_id, f"{model_id}.step", SHA, part)
        for reject in rejects:
            writer.reject(*reject)
    return GraphStore(folder)


def digests(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_a_part_comes_back_as_it_went_in(tmp_path, make_part):
    facts = {
        "unit": "inch",
        "healed": True,
        "seams": 3,
        "nonmanifold": 2,
        "free_faces": 1,
        "volume": 0.1 + 0.2,
    }
    parts = {
        "plain": make_part(),
        "sphere": make_part(1, ()),
        "two shared edges": make_part(2, ((0, 1), (0, 1)), **facts),
    }
    store = write(tmp_path, parts.items())
    assert store.ids == sorted(parts) and len(store) == 3 and store.grid == 4
    for model_id, part in parts.items():
        assert_same(store.load(model_id), part)
    assert store.signatures.shape == (3, 5)
    assert list(store.load_many(["sphere", "plain"])) == ["sphere", "plain"]
    assert store.manifest["edges"].tolist() == [6, 0, 4]


def test_bytes_do_not_depend_on_the_order_of_arrival(tmp_path, make_part):
    parts = [(f"part {i}", make_part(2 + i, ((0, 1),), seed=i)) for i in range(12)]
    rejects = [("b.step", "timeout", "took long"), ("a.step", "empty", "has no face")]
    write(tmp_path / "one", parts, rejects)
    write(tmp_path / "two", parts[::-1], rejects[::-1])
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert not list((tmp_path / "one").glob(".*"))


def test_adding_a_part_leaves_other_shards_alone(tmp_path, make_part):
    parts = [(f"part {i}", make_part(seed=i)) for i in range(20)]
    write(tmp_path / "one", parts[:-1], shards=8)
    write(tmp_path / "two", parts, shards=8)
    one, two = digests(tmp_path / "one"), digests(tmp_path / "two")
    changed = {name for name in one.keys() & two.keys() if one[name] != two[name]}
    shard = f"shard-{shard_of(parts[-1][0], 8):05d}.safetensors"
    assert changed | {shard} == {"manifest.parquet", shard}


def test_an_older_store_in_the_folder_is_replaced(tmp_path, make_part):
    write(tmp_path, [(f"part {i}", make_part(seed=i)) for i in range(20)], [("x", "empty", "y")])
    store = write(tmp_path, [("only", make_part())])
    assert store.ids == ["only"] and store.rejects.empty
    assert len(list(tmp_path.glob("shard-*"))) == 1


def test_a_store_of_rejects_only(tmp_path):
    store = write(tmp_path, [], [("a.step", "crash", "signal 11")])
    assert store.ids == [] and store.grid is None and store.signatures.shape == (0, 0)
    assert store.rejects.to_dict("records") == [
        {"path": "a.step", "reason": "crash", "message": "signal 11"}
    ]


NASTY = 'a "quoted", b\nnew\rline\x00 \u202eleft <b>&amp; 漢字 =1+1 NA'


def test_paths_and_messages_are_data(tmp_path, make_part):
    with GraphStoreWriter(tmp_path, 2) as writer:
        writer.add(NASTY, NASTY + ".step", SHA, make_part())
        writer.add("bytes", "not \udcff unicode", SHA, make_part())
        writer.reject(NASTY, "timeout", NASTY)
        writer.reject("NA", "empty", "")
        writer.reject("\udcff", "empty", "")
    store = GraphStore(tmp_path)
    assert_same(store.load(NASTY), make_part())
    assert set(store.manifest["path"]) == {NASTY + ".step", "not \\udcff unicode"}
    assert store.rejects["path"].tolist() == ["NA", "\\udcff", NASTY]
    assert store.rejects["message"].tolist() == ["", "", NASTY]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    ids=st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=6, unique=True),
    shards=st.integers(1, 5),
    data=st.data(),
)
def test_round_trip_of_any_parts(tmp_path_factory, make_part, ids, shards, data):
    parts = {}
    for seed, model_id in enumerate(ids):
        n_faces = data.draw(st.integers(1, 5))
        end = st.integers(0, n_faces - 1)
        pairs = data.draw(st.lists(st.tuples(end, end), max_size=6))
        parts[model_id] = make_part(n_faces, pairs, seed=seed, grid=2)
    store = write(tmp_path_factory.mktemp("store"), parts.items(), shards=shards)
    assert store.ids == sorted(parts)
    for model_id, part in parts.items():
        assert_same(store.load(model_id), part)


def test_a_store_travels_to_another_process(tmp_path, make_part):
    store = write(tmp_path, [("a", make_part())])
    store.load("a")
    assert_same(pickle.loads(pickle.dumps(store)).load("a"), make_part())


def test_ids_are_unique(tmp_path, make_part):
    with GraphStoreWriter(tmp_path, 1) as writer:
        writer.add("a", "one.step", SHA, make_part())
        with pytest.raises(InputError, match=r"two\.step: its id 'a' is taken by one\.step"):
            writer.add("a", "two.step", SHA, make_part())


def test_one_grid_size_per_store(tmp_path, make_part):
    with GraphStoreWriter(tmp_path, 1) as writer:
        writer.add("a", "a.step", SHA, make_part(grid=4))
        with pytest.raises(InputError, match="its grid size is 5, the store's is 4"):
            writer.add("b", "b.step", SHA, make_part(grid=5))


def test_a_number_that_is_not_finite_is_refused(tmp_path, make_part):
    part = make_part()
    part.face_grid[3, 1, 1, 2] = np.nan
    with GraphStoreWriter(tmp_path, 1) as writer:
        with pytest.raises(RejectedPart, match=r"not_finite: a\.step: face_grid is .* at face 3"):
            writer.add("a", "a.step", SHA, part)
        with pytest.raises(RejectedPart, match="not_finite"):
            writer.add("a", "a.step", SHA, make_part(volume=float("inf")))
        assert writer.counts == (0, 0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("face_area", np.zeros(6), "face_area is float64"),
        ("edge_length", np.zeros(5, np.float32), r"edge_length is float32 \(5,\)"),
        ("face_type", np.full(6, 11, np.uint8), "face_type holds 11"),
        ("edge_dst", np.full(6, 6, np.int32), "leads to a face outside 0..5"),
    ],
)
def test_what_is_no_graph_is_a_programming_error(tmp_path, make_part, name, value, message):
    part = dataclasses.replace(make_part(), **{name: value})
    with GraphStoreWriter(tmp_path, 1) as writer, pytest.raises(ValueError, match=message):
        writer.add("a", "a.step", SHA, part)


def test_a_failed_run_leaves_no_store_and_no_spill(tmp_path, make_part):
    with pytest.raises(RuntimeError, match="midway"), GraphStoreWriter(tmp_path, 1) as writer:
        writer.add("a", "a.step", SHA, make_part())
        raise RuntimeError("midway")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="holds no graph store"):
        GraphStore(tmp_path)


def test_a_flipped_bit_is_found_and_the_file_named(tmp_path, make_part):
    write(tmp_path, [("a", make_part()), ("b", make_part(seed=1))], shards=1)
    shard = tmp_path / "shard-00000.safetensors"
    content = bytearray(shard.read_bytes())
    content[-5] ^= 1
    shard.write_bytes(content)
    store = GraphStore(tmp_path)
    with pytest.raises(InputError, match=r"shard-00000\.safetensors: the bytes of part"):
        store.load_many(["a", "b"])


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_a_cut_shard_is_named(tmp_path, make_part, keep):
    write(tmp_path, [("a", make_part())], shards=1)
    shard = tmp_path / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"shard-00000\.safetensors: cannot be read"):
        GraphStore(tmp_path).load("a")


def test_a_shard_of_another_run_is_named(tmp_path, make_part):
    write(tmp_path / "one", [("a", make_part())], shards=1)
    write(tmp_path / "two", [("b", make_part())], shards=1)
    name = "shard-00000.safetensors"
    (tmp_path / "one" / name).write_bytes((tmp_path / "two" / name).read_bytes())
    with pytest.raises(InputError, match="is not where the manifest says"):
        GraphStore(tmp_path / "one").load("a")


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_damaged_manifest_is_named(tmp_path, make_part, content):
    write(tmp_path, [("a", make_part())])
    manifest = tmp_path / "manifest.parquet"
    manifest.write_bytes(manifest.read_bytes()[:-20] if content is None else content)
    with pytest.raises(InputError, match=r"manifest\.parquet: cannot be read"):
        GraphStore(tmp_path)


def test_damaged_rejects_are_named(tmp_path):
    store = write(tmp_path, [])
    (tmp_path / "rejects.csv").write_text("path,reason\n")
    with pytest.raises(InputError, match=r"rejects\.csv: must begin with the columns"):
        _ = store.rejects


@pytest.mark.parametrize("kind", ["FEATURE", "FACTS"])
def test_another_version_is_refused_with_the_cure(tmp_path, make_part, monkeypatch, kind):
    write(tmp_path, [("a", make_part())])
    name = f"{kind}_VERSION"
    monkeypatch.setattr(store_layout, name, getattr(cad_arrays, name) + 1)
    with pytest.raises(VersionMismatch, match=f"{kind.lower()} version.*dvc repro --force extract"):
        GraphStore(tmp_path)


def test_an_unknown_id_is_named(tmp_path, make_part):
    with pytest.raises(InputError, match="holds no part 'b'"):
        write(tmp_path, [("a", make_part())]).load("b")
