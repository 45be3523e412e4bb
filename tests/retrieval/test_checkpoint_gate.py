"""The health gate on a model's files, and the way back, in a project of eighteen parts."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
import yaml

from brepfind.cad.arrays import FEATURE_VERSION
from brepfind.checkpoints import checksums
from brepfind.checkpoints.weights import save_weights
from brepfind.errors import CheckFailed, InputError
from brepfind.files import sha256
from brepfind.metrics.gate import HealthConfig
from brepfind.params import load_section, read_params
from brepfind.pipeline.evaluate import _leaks
from brepfind.pipeline.health import BEST, LAST, Gate, since
from brepfind.pipeline.rollback import SET_ASIDE, rollback
from brepfind.retrieval.embed import embed
from brepfind.retrieval.leaks import write_signatures
from brepfind.retrieval.recorded import validate
from brepfind.training.config import TrainConfig

# An untrained model passes these, and a constant tower does not.
LIMITS = {
    "min_rows": 8, "min_column_std": 1e-4, "max_mean_cosine": 1.0, "min_effective_rank": 1.01,
    "min_effective_rank_share": 0.0, "min_participation": 1.0, "min_distinct": 0.5,
    "max_near_copies": 0.9, "min_self_retrieval": 0.5,
}  # fmt: skip
CONSTANT = "part_projection.out.weight"


@pytest.fixture
def project(tmp_path, dual, tower_folder, world, request):
    """A project whose training has ended: two epochs, both models the same and sound."""
    root = tmp_path / "project"
    shutil.copytree(world.root / "graphs", root / "data/graphs")
    shutil.copytree(world.root / "corpus", root / "data/corpus")
    params = read_params(request.config.rootpath / "params.yaml")
    params["health"] |= LIMITS
    params["train"] |= {"text_tower": str(tower_folder), "embed_dim": 8}
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    split = world.split.assign(twin=range(len(world.split)))
    (root / "data/split").mkdir()
    split.to_parquet(root / "data/split/split.parquet")
    validation = world.split["model_id"][world.split["split"] == "validation"]
    embedded = embed(dual, world.reader, world.corpus, validation, twins=world.twins)
    found = validate(embedded, float(dual.logit_scale.detach().exp()))
    facts = {
        "kind": "dual",
        "encoder": dual.encoder.config.model_dump_json(),
        "dual": dual.config.model_dump_json(),
        "text_tower": str(tower_folder),
        "text_train": "last",
        "last_layers": "1",
        "feature_version": str(FEATURE_VERSION),
        "recall": str(found.recall),
        "held_out_loss": str(found.loss),
    }
    model = root / "data/model"

    def save(name, epoch, **changed):
        tensors = {**dual.state_dict(), **changed}
        save_weights(model / name, tensors, facts | {"epoch": str(epoch)})

    save(BEST, 1)
    save(LAST, 2)
    (model / "train.json").write_text(json.dumps({"validation_parts": 3}))
    (model / "history.csv").write_text("epoch,loss,cad_std\n0,,0.5\n1,2.0,0.5\n2,1.9,0.5\n")
    gate = Gate(
        project=root,
        home=root / ".brepfind",
        limits=load_section(root / "params.yaml", "health", HealthConfig),
        config=load_section(root / "params.yaml", "train", TrainConfig),
    )
    return SimpleNamespace(root=root, model=model, gate=gate, save=save)


@pytest.fixture
def constant(dual):
    state = dual.state_dict()
    return {name: torch.zeros_like(state[name]) for name in (CONSTANT, "lengths.weight")}


def test_a_sound_model(project):
    seen = project.gate.model(BEST)
    seen.require()
    assert [finding.verdict for finding in seen.record] == ["ok", "ok"]
    assert json.loads(json.dumps(seen.as_json(), allow_nan=False))["model"]["epoch"] == 1
    assert project.gate.files([BEST, LAST]).counts["weights"] > 100
    assert project.gate.story().sentence() == "sound to its last epoch, 2"


def test_a_constant_tower_has_its_dead_units_for_a_cause(project, constant):
    project.save(BEST, 1, **constant)
    seen = project.gate.model(BEST)
    with pytest.raises(
        CheckFailed, match=r"health: the embeddings: health\.cad\.column_std is .*the way back"
    ) as caught:
        seen.require("look for the way back")
    found = {finding.name: finding for finding in caught.value.findings}
    assert found["health.units.part_projection.out"].verdict == "failed"
    assert "part_projection.out" in found["health.cause.dead_weights"].advice
    assert found["health.loss_off_record"].verdict == "failed"


def test_weights_of_another_training_are_not_what_was_trained(project, dual):
    """They are finite and spread out; only the record tells."""
    name = "text_projection.out.weight"
    project.save(BEST, 1, **{name: dual.state_dict()[name].roll(1, 0)})
    with pytest.raises(
        CheckFailed, match=r"health: the checkpoint is not what was trained: health\.loss_off_rec"
    ):
        project.gate.model(BEST).require()


def test_dead_units_that_the_embeddings_do_not_show(project, dual):
    dead = {
        name: torch.zeros_like(tensor)
        for name, tensor in dual.state_dict().items()
        if name.endswith("layer.0.output.dense.weight")
    }
    assert dead
    project.save(BEST, 1, **dead)
    with pytest.raises(CheckFailed, match=r"health: units on a probe batch: health\.units\.text"):
        project.gate.model(BEST).require()


def test_a_file_that_is_damaged_or_not_there(project):
    (project.model / LAST).write_bytes(b"nothing")
    (project.model / BEST).unlink()
    found = project.gate.files([BEST, LAST]).findings
    failed = [(finding.name, finding.value) for finding in found if finding.verdict == "failed"]
    assert ("health.best.safetensors", "not readable") in failed
    assert ("health.last.safetensors", "not readable") in failed


def test_the_history_says_since_when(project):
    rows = "epoch,loss,cad_std\n0,,0.5\n1,2.0,0.5\n2,1.9,0.00001\n3,,0.00001\n"
    (project.model / "history.csv").write_text(rows)
    said = since(project.gate.story())
    assert "broken since epoch 2 (cad_std is 1e-05, asked is >= 0.0001)" in said
    assert "the last sound epoch is 1" in said
    assert "brepfind rollback" in said
    (project.model / "history.csv").unlink()
    fresh = Gate(
        project=project.root,
        home=project.gate.home,
        limits=project.gate.limits,
        config=project.gate.config,
    )
    with pytest.raises(InputError, match=r"history\.csv is not there"):
        fresh.story()


def test_nothing_to_roll_back(project):
    before = sha256(project.model / BEST)
    outcome = rollback(project.root)
    assert outcome.code == 0
    assert "epoch 1: sound; nothing to roll back" in outcome.text
    assert sha256(project.model / BEST) == before


def test_the_last_takes_the_place_of_a_sick_best(project, constant):
    project.save(BEST, 1, **constant)
    sick, sound = sha256(project.model / BEST), sha256(project.model / LAST)
    outcome = rollback(project.root)
    assert outcome.code == 0
    assert "epoch 1: the embeddings: health.cad.column_std" in outcome.text
    assert "epoch 2 is the current one now" in outcome.text
    assert "dvc commit --force train" in outcome.text
    assert sha256(project.model / BEST) == sound
    checksums.verify_sidecar(project.model / BEST)
    assert sha256(project.root / SET_ASIDE / f"{sick[:16]}.safetensors") == sick
    assert rollback(project.root).text.endswith("epoch 2: sound; nothing to roll back")


def test_where_nothing_sound_was_kept_it_says_which_epoch_was(project, constant):
    project.save(BEST, 2, **constant)
    (project.model / LAST).write_bytes(b"nothing")
    rows = "epoch,loss,cad_std\n0,,0.5\n1,2.0,0.5\n2,1.9,0.00001\n"
    (project.model / "history.csv").write_text(rows)
    before = sha256(project.model / BEST)
    outcome = rollback(project.root)
    assert outcome.code == 1
    assert "epoch unknown: the checkpoint: health.last.safetensors is not readable" in outcome.text
    assert "epoch 1, the last sound one by the history, was not kept" in outcome.text
    assert sha256(project.model / BEST) == before


def test_a_training_that_never_ended_has_nothing_to_roll_back_to(project):
    (project.model / BEST).unlink()
    with pytest.raises(InputError, match="no training has ended"):
        rollback(project.root)


def test_leaks_are_looked_for_in_all_that_was_seen(project, world):
    store = world.reader.store
    context = SimpleNamespace(
        section=lambda name, config: load_section(project.root / "params.yaml", name, config),
        path=lambda relative: project.root / relative,
    )

    def verdicts(signatures):
        seen = SimpleNamespace(ids=store.ids, signatures=signatures)
        return {
            finding.name.removeprefix("evaluate.twins_in_"): (finding.value, finding.verdict)
            for finding in _leaks(context, seen, world.split)
        }

    assert verdicts(store.signatures) == {
        "train": (0, "ok"),
        "validation": (0, "ok"),
        "pretraining": ("unknown", "warning"),
    }
    row = {model_id: number for number, model_id in enumerate(store.ids)}
    tested, trained, validated = row["plate-4"], row["plate-0"], row["shaft-3"]
    alike = store.signatures.copy()
    alike[trained] = alike[validated] = alike[tested]
    checkpoint = project.root / read_params(project.root / "params.yaml")["sanitize"]["checkpoint"]
    write_signatures(checkpoint, alike[[tested]])
    assert verdicts(alike) == {
        "train": (1, "failed"),
        "validation": (1, "failed"),
        "pretraining": (1, "failed"),
    }
