"""reports/index.html in the life of a project: never that of another run."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

import html5lib
import pytest

from tests.pipeline.project import Done, Project, Stop

pytestmark = pytest.mark.timeout(1800)


def parse(text: str) -> Element:
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)


def said(element: Element | None) -> str:
    assert element is not None
    return " ".join(" ".join(element.itertext()).split())


def missing(tree: Element) -> set[str]:
    return {str(one.get("id")) for one in tree.iter("section") if "Not here:" in said(one)}


def test_of_a_green_run_it_says_what_was_measured(green: Done, project: Project) -> None:
    tree = parse(project.artifact(green.pipeline, "report/index.html"))
    verdict = said(tree.find(".//p[@class='said']"))
    assert verdict.startswith("Every gate passed")
    recall = green.pipeline.data.metrics["test/text_to_cad/R_at_1"]
    table = said(tree.find(".//section[@id='retrieval']"))
    assert f"a caption looks for its part {100 * recall:.1f} %" in table
    assert missing(tree) == set()
    again = said(tree.find(".//section[@id='again']"))
    assert re.search(r"git commit [0-9a-f]{40}", again)
    assert "sha256" in again
    assert "No run before this one is known" in table


def test_the_run_after_it_knows_the_one_before(
    green: Done, other_limit: Done, project: Project
) -> None:
    tree = parse(project.artifact(other_limit.pipeline, "report/index.html"))
    table = said(tree.find(".//section[@id='retrieval']"))
    state = green.pipeline.data.tags["brepfind.fingerprint"][:12]
    assert f"The run before is state {state}" in table
    # Nothing but a limit changed.
    assert "on the same test split: R@1 is +0.0 points off it" in table


@pytest.mark.parametrize(
    ("fixture", "stage"),
    [
        ("garbage", "extract"),
        ("nan_checkpoint", "sanitize"),
        ("nan_loss", "train"),
        ("constant_tower", "health"),
        ("nan_weight", "health"),
    ],
)
def test_of_a_run_that_stopped_it_says_why(
    fixture: str, stage: str, request: pytest.FixtureRequest, project: Project
) -> None:
    stop: Stop = request.getfixturevalue(fixture)
    tree = parse(stop.page)
    assert said(tree.find(".//p[@class='said']")) == f"It stopped at {stage}"
    assert "Every gate passed" not in said(tree)
    reason = re.sub(r"STOPPED at \w+: (.*)\. Evidence: .*", r"\1", stop.ended.sentence)
    assert " ".join(reason.split())[:60] in said(tree.find(".//div[@class='verdict stopped']"))
    # An older run's numbers still lie in metrics/; they are not this run's.
    assert {"retrieval", "space", "ranks", "worst"} <= missing(tree)
    assert project.artifact(stop.pipeline, "postmortem/index.html") == stop.page
