"""The run's page: what it says is what was measured, what comes from outside is only text, and what
is missing is said.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib
import numpy as np
import pytest

from brepfind.findings import Finding
from brepfind.report.page import page, write_page
from brepfind.report.queries import BANDS, Ranked
from brepfind.report.run import Run, Stop
from brepfind.report.space import likeness, plane
from brepfind.report.words import percent
from tests.report.a_run import EVIL, FAMILIES, PARTS, make_embeddings, make_run

SVG = "{http://www.w3.org/2000/svg}svg"
SECTIONS = ["retrieval", "training", "vitals", "space", "ranks", "worst", "corpus", "cost", "again"]


def parse(text: str) -> Element:
    """The page's tree; a parse error of HTML fails."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)


def said(element: Element) -> str:
    """The text in it, white space collapsed."""
    return " ".join(" ".join(element.itertext()).split())


def section(tree: Element, name: str) -> Element:
    (found,) = [one for one in tree.iter("section") if one.get("id") == name]
    return found


def rows(element: Element) -> dict[str, list[str]]:
    """Rows of all tables in it, by their head."""
    found = {}
    for row in element.iter("tr"):
        cells = [said(cell) for cell in row if cell.tag in ("th", "td")]
        found[cells[0]] = cells[1:]
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def text(run: Run) -> str:
    return page(run)


@pytest.fixture(scope="module")
def tree(text: str) -> Element:
    return parse(text)


def test_the_verdict_comes_first(run: Run, tree: Element) -> None:
    verdict = tree.find(".//div[@class='verdict passed']")
    assert verdict is not None
    to_cad = run.metrics["evaluate"]["text_to_cad"]
    assert said(verdict) == (
        f"Every gate passed A caption finds its part first in {percent(to_cad['R_at_1'])} of 48 "
        f"queries over {PARTS} unseen parts; chance would be {percent(1 / PARTS)}."
    )
    body = tree.find("body")
    assert body is not None
    assert [one.get("id") for one in body.iter("section")] == SECTIONS
    stages = [said(one) for one in body.iter("li") if one.get("class") == "ok"]
    assert stages[0] == "prepare 1 s" and stages[-1] == "publish" and len(stages) == 8


def test_warnings_are_in_the_verdict(run: Run) -> None:
    assert "want a look" not in said(section(parse(page(replace(run, pictures=None))), "retrieval"))
    warned = {
        stage: {**run.metrics[stage], "warnings": n}
        for stage, n in (("health", 2), ("evaluate", 1))
    }
    few = Finding(
        name="evaluate.few", value=3, limit=">= 64", verdict="warning", advice="<b>few</b>"
    )
    fine = Finding(name="evaluate.fine", value=1, limit=">= 1", verdict="ok")
    findings = {**run.findings, "evaluate": [one.as_json() for one in (fine, few)]}
    tree = parse(
        page(replace(run, pictures=None, metrics={**run.metrics, **warned}, findings=findings))
    )
    verdict = tree.find(".//div[@class='verdict warned']")
    assert verdict is not None and said(verdict).startswith("Every gate passed, with 3 warnings")
    assert "2 warnings of health: see the vital signs below." in said(verdict)
    assert "1 warning of evaluate: see the next section." in said(verdict)
    look = next(one for one in section(tree, "retrieval").iter("table") if "look" in said(one))
    found = rows(look)
    assert found["warning"] == ["evaluate.few", "3", ">= 64", "<b>few</b>"] and "ok" not in found


def test_recalls_are_those_of_the_metrics(run: Run, tree: Element) -> None:
    result = run.metrics["evaluate"]
    found = rows(section(tree, "retrieval"))
    for name, direction in (
        ("a caption looks for its part", "text_to_cad"),
        ("a part looks for its captions", "cad_to_text"),
        ("a part looks for itself", "cad_to_cad"),
    ):
        table = result[direction]
        for cell, key in zip(found[name], ("R_at_1", "R_at_5", "R_at_10"), strict=False):
            low, high = table["interval_95"][key]
            assert cell == f"{percent(table[key])} {100 * low:.1f} to {100 * high:.1f}"
        assert float(found[name][3]) == pytest.approx(table["median_rank"], abs=0.05)
    ridge = result["baselines"]["ridge"]["text_to_cad"]
    assert found["ridge regression from descriptors"][0].startswith(percent(ridge["R_at_1"]))


def test_ranks_by_level_and_family_are_those_of_the_metrics(run: Run, tree: Element) -> None:
    to_cad = run.metrics["evaluate"]["text_to_cad"]
    found = rows(section(tree, "ranks"))
    exact = to_cad["by_level"]["3"]
    assert found["3, exact"][0] == f"{exact['n_queries']:.0f}"
    assert found["3, exact"][1].startswith(percent(exact["R_at_1"]))
    by_family = [name for name in found if name in FAMILIES]
    assert set(by_family) == set(FAMILIES) - {""}
    recalls = [to_cad["by_family"][name]["R_at_1"] for name in by_family]
    assert recalls == sorted(recalls)


def test_bars_of_ranks_are_the_recalls(run: Run) -> None:
    ranked = Ranked(make_embeddings())
    to_cad = run.metrics["evaluate"]["text_to_cad"]
    bands = ranked.bands(np.ones(len(ranked.parts), bool))
    assert sum(bands) == pytest.approx(1)
    for k, share in zip(BANDS, np.cumsum(bands), strict=False):
        assert share == pytest.approx(to_cad[f"R_at_{k}"])
    level = ranked.captions["level"].to_numpy() == 3
    assert ranked.bands(level)[0] == pytest.approx(to_cad["by_level"]["3"]["R_at_1"])


def test_the_worst_queries_are_the_worst(run: Run, tree: Element) -> None:
    embeddings = make_embeddings()
    text = embeddings.text / np.linalg.norm(embeddings.text, axis=1, keepdims=True)
    cad = embeddings.cad / np.linalg.norm(embeddings.cad, axis=1, keepdims=True)
    scores = text @ cad.T
    own = scores[np.arange(len(text)), embeddings.caption_part]
    rank = 1 + (scores > own[:, None]).sum(1)
    cards = [one for one in section(tree, "worst").iter("li") if one.find(".//h3") is not None]
    assert 3 < len(cards) == min(20, (rank > 1).sum())
    # Captions are told apart as they are written, but for white space.
    plain = [" ".join(caption.split()) for caption in embeddings.captions["caption"]]
    shown = [rank[plain.index(said(card.find(".//bdi")))] for card in cards]
    assert shown == sorted(rank[rank > 1], reverse=True)[: len(cards)]
    assert f"rank {shown[0]} ·" in said(cards[0])
    first = plain.index(said(cards[0].find(".//bdi")))
    names = [said(one).split()[2] for one in cards[0].iter("figcaption")][1:]
    ids = embeddings.parts["model_id"]
    assert names == [ids[n].split()[0] for n in np.argsort(-scores[first])[:3]]


def test_pictures_are_drawn_and_what_cannot_be_drawn_is_said(tree: Element) -> None:
    worst = section(tree, "worst")
    pictures = list(worst.iter("img"))
    assert len(pictures) == 4 * len(list(worst.iter("h3")))
    assert all(one.get("src", "").startswith("data:image/webp;base64,") for one in pictures)
    without = [
        one for one in pictures if (one.get("alt") or "").startswith("no picture of part_00")
    ]
    if without:  # only if the broken part is among those shown
        assert "is a web page" in (without[0].get("alt") or "")
        assert "1 part could not be drawn." in said(worst)


def test_without_a_place_of_pictures_there_are_names(run: Run) -> None:
    worst = section(parse(page(replace(run, pictures=None))), "worst")
    assert "No pictures" in said(worst)
    assert "came first" in said(worst)
    assert not list(worst.iter("img"))


def test_nothing_from_outside_is_more_than_text(text: str, tree: Element) -> None:
    assert not list(tree.iter("script"))
    assert not [
        (one.tag, name) for one in tree.iter() for name in one.attrib if name.startswith("on")
    ]
    captions = {said(one) for one in section(tree, "worst").iter("bdi")}
    assert {" ".join(caption.split()) for caption in EVIL} <= captions
    assert "<b onclick" not in text and "<u>bad" not in text and "<i>folder" not in text
    # Marks that turn the rest of a line around do not reach what stands after them.
    assert {one.tag for one in tree.iter() if "\u202e" in (one.text or "")} == {"bdi"}


def test_it_needs_no_network(text: str, tree: Element) -> None:
    allowed = ("data:", "#")
    for one in tree.iter():
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            value = one.get(name)
            assert value is None or value.startswith(allowed), (one.tag, name, value[:60])
    assert "url(" not in text and "@import" not in text
    assert not {one.tag for one in tree.iter()} & {"iframe", "object", "embed", "form"}


def test_ids_are_there_once_and_links_lead_to_them(tree: Element) -> None:
    ids = [one.get("id") for one in tree.iter() if one.get("id")]
    assert len(ids) == len(set(ids))
    links = [one.get("href", "") for one in tree.iter("a")]
    assert links == [f"#{name}" for name in SECTIONS]


def test_the_corpus_and_its_rejects(tree: Element) -> None:
    corpus = section(tree, "corpus")
    assert "24 test, 1 200 train, 5 validation parts; 1 part has a twin" in said(corpus)
    assert rows(corpus)["unreadable"] == ["1"]
    assert rows(corpus)["<u>bad</u>.step"] == ["unreadable", EVIL[0]]


def test_leaks_are_not_hidden(run: Run) -> None:
    split = {**run.metrics["split"], "leaking_parts": 2}
    tree = parse(page(replace(run, pictures=None, metrics={**run.metrics, "split": split})))
    assert "2 LEAK" in said(section(tree, "corpus"))
    assert "none of them across" not in said(section(tree, "corpus"))


def test_vital_signs_are_beside_their_limits(run: Run, tree: Element) -> None:
    vitals = section(tree, "vitals")
    labels = [one.get("aria-label", "") for one in vitals.iter(SVG)]
    assert any("Mean cosine" in label and "Asked: ≤ 0.95" in label for label in labels)
    assert "CAD: from 0.2 to 0.9." in labels[0]
    names = {said(one) for one in vitals.iter("code")}
    assert names == {one["name"] for one in run.findings["health"]}
    look = said(next(one for one in vitals.iter("table") if "want a look" in said(one)))
    assert "health.units" in look and "health.cad.rows" not in look


def test_the_same_run_gives_the_same_page(run: Run, text: str) -> None:
    assert page(run) == text


@pytest.mark.parametrize(
    ("test", "says"),
    [("t1", "points off it"), ("t2", "cannot be compared number by number")],
)
def test_the_run_before(run: Run, test: str, says: str) -> None:
    result = run.metrics["evaluate"]
    before = {
        "state": "f" * 64,
        "when": "2026-01-01 00:00 UTC",
        "test": test,
        "retrieval": {"text_to_cad": {**result["text_to_cad"], "R_at_1": 0.125}},
    }
    found = section(parse(page(replace(run, pictures=None, previous=before))), "retrieval")
    assert says in said(found)
    assert rows(found)["the run before"][0].startswith("12.5 %")
    if test == "t1":
        points = 100 * (result["text_to_cad"]["R_at_1"] - 0.125)
        assert f"R@1 is {points:+.1f} points" in said(found)


def test_without_a_run_before_it_says_so(tree: Element) -> None:
    assert "No run before this one is known" in said(section(tree, "retrieval"))


def test_to_run_it_again(run: Run, tree: Element) -> None:
    again = section(tree, "again")
    assert rows(again)["git commit"] == ["abc123 with changes since"]
    assert "git checkout abc123 make setup" in said(again)
    assert "lr: 1.0e-05" in said(again) and "<i>folder</i>" in said(again)


def test_a_run_that_stopped_shows_why_and_nothing_of_later_stages(run: Run) -> None:
    done = {name: run.metrics[name] for name in ("prepare", "extract", "split", "sanitize")}
    bad = Finding(name="train.loss", value=float("nan"), limit="finite", verdict="failed")
    fine = Finding(name="train.fine", value=1, limit=">= 0", verdict="ok")
    stop = Stop(
        stage="train", reason="the loss is <nan>", findings=(fine, bad), evidence=".brepfind/x"
    )
    text = page(replace(run, stop=stop, metrics=done, embeddings=None, findings={}, pictures=None))
    tree = parse(text)
    assert tree.find(".//div[@class='verdict passed']") is None
    verdict = tree.find(".//div[@class='verdict stopped']")
    assert verdict is not None and said(verdict) == "It stopped at train the loss is <nan>"
    title = tree.find(".//title")
    assert title is not None and said(title).startswith("It stopped at train")
    first, second = section(tree, "stopped").iter("table")
    assert rows(first)["failed"][:2] == ["train.loss", "nan"] and "ok" not in rows(first)
    assert rows(second)["ok"][0] == "train.fine"
    steps = {said(one): one.get("class") for one in tree.find(".//ol[@class='steps']") or ()}
    assert steps["train stopped"] == "bad" and steps["health not run"] == "not"
    assert "Not here: evaluate has not passed in this run." in said(section(tree, "retrieval"))
    assert "Training did not end well" in said(section(tree, "training"))
    assert tree.find(".//dl[@class='tiles']") is None


def test_of_a_run_without_anything_every_section_says_so(run: Run) -> None:
    bare = Run(
        state="",
        written="now",
        stages=run.stages,
        stop=Stop(stage="prepare", reason="Ctrl-C", from_outside=True),
    )
    tree = parse(page(bare))
    verdict = tree.find(".//div[@class='verdict stopped']")
    assert verdict is not None and said(verdict).startswith(
        "It was stopped from outside at prepare"
    )
    missing = {one.get("id") for one in tree.iter("section") if "Not here:" in said(one)}
    assert missing == set(SECTIONS) - {"again"}
    assert "No parameters" in said(section(tree, "again"))


def test_a_page_without_embeddings_needs_no_open_cascade() -> None:
    code = """
import sys
from brepfind.report.page import page
from brepfind.report.run import Run, Stop
run = Run(state="s", written="now", stages=("train",), stop=Stop(stage="train", reason="NaN"))
assert "It stopped at train" in page(run)
sys.exit("OCP" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_corpus_without_families_or_levels(run: Run) -> None:
    embeddings = make_embeddings()
    embeddings = replace(embeddings, parts=embeddings.parts.assign(family=""))
    result = {**run.metrics["evaluate"]}
    result["text_to_cad"] = {**result["text_to_cad"], "by_family": {}}
    assert run.parts is not None
    changed = replace(
        run,
        embeddings=embeddings,
        pictures=None,
        parts=run.parts.assign(family=""),
        metrics={**run.metrics, "evaluate": result},
    )
    tree = parse(page(changed))
    assert "Not by family: the corpus names none." in said(section(tree, "ranks"))
    assert "No families" in said(section(tree, "corpus"))


def test_it_is_written_whole(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "reports/index.html"
    write_page(path, replace(run, pictures=None))
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert path.stat().st_size < 3_000_000


def test_the_matrix_is_of_mean_cosines_in_order_of_families() -> None:
    embeddings = make_embeddings()
    like = likeness(embeddings)
    assert [size for _, size in like.groups] == [6, 6, 6, 6]
    assert [name for name, _ in like.groups] == sorted([*FAMILIES[:3], "unknown"], key=_by_family)
    unit = embeddings.cad / np.linalg.norm(embeddings.cad, axis=1, keepdims=True)
    text = embeddings.text / np.linalg.norm(embeddings.text, axis=1, keepdims=True)
    order = np.argsort(embeddings.parts["family"].to_numpy(str), kind="stable")
    mean = text.reshape(PARTS, 2, -1).mean(1)
    np.testing.assert_allclose(like.values, (mean @ unit.T)[order][:, order], atol=1e-6)
    assert like.own == pytest.approx(np.trace(like.values) / PARTS)
    off = like.values.sum() - np.trace(like.values)
    assert like.other == pytest.approx(off / (PARTS * (PARTS - 1)))


def _by_family(name: str) -> str:
    return "" if name == "unknown" else name


def test_many_parts_are_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brepfind.report.space.MOST_CELLS", 8)
    monkeypatch.setattr("brepfind.report.space.MOST_MAPPED", 10)
    whole = make_embeddings()
    like = likeness(whole)
    assert like.per_cell == 3 and like.values.shape == (8, 8)
    assert len(plane(whole).parts) == 8


def test_the_map_keeps_the_most_of_the_variance() -> None:
    flat = plane(make_embeddings())
    assert flat.cad.shape == flat.text.shape == (PARTS, 2)
    both = np.concatenate([flat.cad, flat.text])
    assert np.abs(both.mean(0)).max() < 1e-9
    assert 0.1 < flat.share < 1
    assert both[:, 0].var() >= both[:, 1].var()
