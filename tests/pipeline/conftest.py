"""One life of a project, shared by the tests: it breaks and is mended at one stage after another.

Each stage costs seconds of imports, so nothing runs twice that DVC need not run twice. The
fixtures build on each other in the order of the pipeline; each keeps what its tests look at, since
the project itself goes on.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from brepfind.checkpoints import checksums
from brepfind.checkpoints.authors import PREFIX, write_authors
from brepfind.checkpoints.weights import load_weights
from brepfind.files import sha256
from brepfind.models.encoder import BrepEncoder, EncoderConfig
from tests.pipeline.project import Done, Project, Stop

GARBAGE = b"ISO-10303-21; this is no STEP file\n" * 20
ENCODER = EncoderConfig(dim=32, layers=2, heads=4, kv_heads=2, feed_forward=64, dropout=0.1)
NAN_STEP = 2


# The project's life in order, so that each test waits only for its own step of it.
ORDER = ("test_halts", "test_green", "test_run_page", "test_experiments", "test_stages")

# What comes after a stage: neither made nor touched when it stops.
LATER = {
    "extract": ["data/split", "data/weights", "data/model", "data/embeddings", "data/index"],
    "sanitize": ["data/model", "data/embeddings", "data/index"],
    "train": ["data/embeddings", "data/index"],
    "health": ["data/embeddings", "data/index"],
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests of that life among themselves; all others stay where they are."""
    here = Path(__file__).parent
    places = [
        n for n, item in enumerate(items) if item.path.parent == here and item.path.stem in ORDER
    ]
    own = sorted((items[n] for n in places), key=lambda item: ORDER.index(item.path.stem))
    for place, item in zip(places, own, strict=True):
        items[place] = item


def stop(project: Project, at: str, **environment: str) -> Stop:
    """A plain ``dvc repro`` that must stop."""
    before = project.digests(*LATER[at])
    ended = project.dvc("repro", **environment)
    assert ended.code != 0, ended.output[-3000:]
    pipeline = project.runs()[0]
    stages = project.stages_of(pipeline)
    assert at in stages, ended.output[-3000:]
    return Stop(
        ended=ended,
        pipeline=pipeline,
        stages=stages,
        evidence=project.evidence(ended),
        report=(project.root / f"reports/{at}-failure.md").read_text(encoding="utf-8"),
        page=(project.root / "reports/index.html").read_text(encoding="utf-8"),
        artifacts=project.artifacts(stages[at], "postmortem"),
        before=before,
        after=project.digests(*LATER[at]),
    )


def go_on(project: Project, *arguments: str) -> Done:
    """A plain ``dvc repro`` that must pass."""
    ended = project.dvc("repro", *arguments)
    assert ended.code == 0, ended.output[-3000:]
    pipelines = project.runs()
    return Done(ended, pipelines, project.stages_of(pipelines[0]))


def write_pretrained(path: Path) -> None:
    """A sound checkpoint in the authors' layout, of a small encoder."""
    encoder = BrepEncoder(ENCODER, seed=3)
    write_authors(path, dict(encoder.state_dict()), hyper_parameters=ENCODER.model_dump())


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Code and settings; a checkpoint; the sample prepared, and then taken over as a user's own."""
    root = tmp_path_factory.mktemp("pipeline") / "a project"
    root.mkdir()
    project = Project.make(root)
    write_pretrained(root / "data/pretrained/tiny.ckpt")
    prepared = project.dvc("repro", "prepare")
    assert prepared.code == 0, prepared.output[-3000:]
    corpus = root / "data/corpus"
    shutil.copytree(corpus / "step", root / "data/raw/step")
    captions = pd.read_parquet(corpus / "captions.parquet")
    captions[["model_id", "caption"]].to_csv(root / "data/raw/captions.csv", index=False)
    project.set(
        {
            "prepare.source": "folder",
            "prepare.step_dir": "data/raw/step",
            "prepare.captions": "data/raw/captions.csv",
        }
    )
    project.commit("Start")
    return project


@pytest.fixture(scope="session")
def garbage(project: Project) -> Stop:
    """Half of the STEP files are garbage; mended afterwards."""
    files = sorted((project.root / "data/raw/step").rglob("*.step"))
    kept = {file: file.read_bytes() for file in files[::2]}
    for file in kept:
        file.write_bytes(GARBAGE)
    stopped = stop(project, "extract")
    for file, content in kept.items():
        file.write_bytes(content)
    stopped.facts["rejected"] = "\n".join(
        file.relative_to(project.root / "data/raw/step").as_posix() for file in kept
    )
    return stopped


@pytest.fixture(scope="session")
def nan_checkpoint(project: Project, garbage: Stop) -> Stop:
    """One NaN in the pretrained checkpoint; mended afterwards."""
    path = project.root / "data/pretrained/tiny.ckpt"
    content = torch.load(path, weights_only=False)
    key = next(key for key in content["state_dict"] if key.endswith("wq.weight"))
    content["state_dict"][key][1, 1] = float("nan")
    torch.save(content, path)
    checksums.settle(path, sha256(path))
    stopped = stop(project, "sanitize")
    # As the encoder calls it: the prefix that the authors' trainer puts before it is no part of it.
    stopped.facts["tensor"] = key.removeprefix(PREFIX)
    write_pretrained(path)
    return stopped


@pytest.fixture(scope="session")
def nan_loss(project: Project, nan_checkpoint: Stop) -> Stop:
    """The loss of one step is NaN; only this command's environment says so."""
    return stop(project, "train", BREPFIND_TEST_NAN_LOSS_AT_STEP=str(NAN_STEP))


@pytest.fixture(scope="session")
def green(project: Project, nan_loss: Stop) -> Done:
    """All stages passed; committed to git."""
    done = go_on(project)
    project.commit("Green")
    return done


@pytest.fixture(scope="session")
def again(project: Project, green: Done) -> Done:
    """The same command, with nothing changed."""
    return go_on(project)


@pytest.fixture(scope="session")
def trained(project: Project, again: Done) -> dict[str, torch.Tensor]:
    """The best weights of the run in which all went well."""
    return load_weights(project.root / "data/model/best.safetensors")[0]


@pytest.fixture(scope="session")
def constant_tower(project: Project, trained: dict[str, torch.Tensor]) -> Stop:
    """The trained CAD tower gives the same embedding for every part."""
    # Nothing that the learned layers say, and nothing of the part's lengths, gets through.
    cut = ("part_projection.out.weight", "lengths.weight")
    return _trained_to(project, trained | {name: torch.zeros_like(trained[name]) for name in cut})


@pytest.fixture(scope="session")
def nan_weight(project: Project, trained: dict[str, torch.Tensor], constant_tower: Stop) -> Stop:
    """The trained model has one NaN."""
    name = "text_projection.out.weight"
    bad = trained[name].clone()
    bad[3, 1] = float("nan")
    return _trained_to(project, {**trained, name: bad})


@pytest.fixture(scope="session")
def mended(project: Project, nan_weight: Stop) -> Done:
    """The trained model that git knows is back."""
    assert project.command("git", "checkout", "--", "dvc.lock").code == 0
    assert project.dvc("checkout", "--force", "data/model").code == 0
    return go_on(project)


@pytest.fixture(scope="session")
def other_limit(project: Project, mended: Done) -> Done:
    """Nothing but a limit of health changed."""
    project.set({"health.warn_mean_cosine": 0.5})
    done = go_on(project)
    project.commit("Another limit")
    return done


@pytest.fixture(scope="session")
def experiment(project: Project, other_limit: Done) -> Done:
    """``dvc exp run`` with another learning rate; the workspace keeps its result."""
    ended = project.dvc("exp", "run", "-S", "train.lr=0.00001")
    assert ended.code == 0, ended.output[-3000:]
    pipelines = project.runs()
    return Done(ended, pipelines, project.stages_of(pipelines[0]))


def _trained_to(project: Project, tensors: dict[str, torch.Tensor]) -> Stop:
    """Leave what a training that went wrong would have left, and run on."""
    path = project.root / "data/model/best.safetensors"
    with safe_open(path, framework="pt") as file:
        notes = file.metadata()
    # Aside and renamed: DVC's cache may be linked into the workspace.
    aside = path.with_suffix(".aside")
    save_file(tensors, str(aside), metadata=notes)  # save_weights would refuse the NaN
    aside.replace(path)
    checksums.settle(path, sha256(path))
    committed = project.dvc("commit", "--force", "train")
    assert committed.code == 0, committed.output
    return stop(project, "health")
