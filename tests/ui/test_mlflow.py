"""MLflow's own pages over the store of real ``dvc exp run``s: what a person reads there.

Two experiments that differ in one parameter, and one that stopped, in the store of a small project.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run
from playwright.sync_api import expect

from tests.pipeline.conftest import write_pretrained
from tests.pipeline.project import TAG, Project
from tests.tracking.server import mlflow_server

pytestmark = [
    pytest.mark.timeout(3600),
    # SQLAlchemy 2.1 deprecates what MLflow 3.17 does with it.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]

PATIENCE_MS = 600_000  # a machine that trains beside it draws a page in minutes
PARAMETER, RATES = "train.lr", ("0.001", "0.003")
RECALLS = [f"{where}R_at_{k}" for where in ("", "test/text_to_cad/") for k in (1, 5, 10)]


@dataclass(frozen=True)
class Experiments:
    """Two runs to compare, one that failed, and where MLflow shows them."""

    uri: str
    two: tuple[Run, Run]
    failed: Run


@pytest.fixture(scope="module")
def experiments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiments]:
    root = tmp_path_factory.mktemp("mlflow") / "a project"
    root.mkdir()
    project = Project.make(root)
    write_pretrained(root / "data/pretrained/tiny.ckpt")
    project.commit("Start")
    for name, rate in zip(("slow", "fast"), RATES, strict=True):
        command = ("exp", "run", "--name", name, "-S", f"{PARAMETER}={rate}")
        ended = project.dvc(*command, timeout_s=3000)
        assert ended.code == 0, ended.output[-3000:]
    command = ("exp", "run", "--name", "broken", "-S", f"{PARAMETER}=0.002")
    broken = project.dvc(*command, timeout_s=3000, BREPFIND_TEST_NAN_LOSS_AT_STEP="2")
    assert broken.code != 0
    runs = {run.data.tags[f"{TAG}experiment_name"]: run for run in project.runs()}
    with mlflow_server(f"sqlite:///{root / 'mlflow.db'}", root / "mlartifacts") as server:
        yield Experiments(server.uri, (runs["slow"], runs["fast"]), runs["broken"])


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1600, "height": 1100})
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


def read_metric(page: Any, name: str) -> list[str]:
    """The values of one row of the comparison's metrics; the table draws only what is in view."""
    link = page.locator('a[title="Plot chart"]').filter(has_text=re.compile(f"^{re.escape(name)}$"))
    values = page.locator(".ReactVirtualized__Grid").last
    values.scroll_into_view_if_needed()
    for place in 3 * [*range(0, 5000, 100)]:  # again, where it was not drawn in time
        values.evaluate("(grid, place) => grid.scrollTop = place", place)
        page.wait_for_timeout(500)
        if link.count():
            top = link.evaluate("link => link.parentElement.style.top")
            cells = values.locator(f'div[style*="top: {top};"] > span').all_inner_texts()
            if len(cells) == 2:  # names are drawn sooner than values
                return cells
    raise AssertionError(f"no row of {name}")


def test_the_comparison_shows_what_differs_and_both_recalls(
    experiments: Experiments, page: Any, screenshot: Callable[..., Path]
) -> None:
    ids = ",".join(f'"{run.info.run_id}"' for run in experiments.two)
    within = experiments.two[0].info.experiment_id
    page.goto(f'{experiments.uri}/#/compare-runs?runs=[{ids}]&experiments=["{within}"]')
    page.get_by_label("Parameters - Show diff only").wait_for()
    page.get_by_label("Parameters - Show diff only").click()
    row = page.locator("tr", has_text=PARAMETER).first
    row.wait_for()
    assert [text for text in row.locator("td").all_inner_texts() if text] == list(RATES)
    # The parameter that differs, and the number that counts, are what the plot begins with.
    everything = page.locator("body")
    in_order = ".*".join(map(re.escape, (PARAMETER, RECALLS[0], "Run details")))
    expect(everything).to_contain_text(re.compile(in_order, re.DOTALL), use_inner_text=True)
    for name in ("slow #1", "fast #1"):
        expect(everything).to_contain_text(name)
    for name in RECALLS:
        shown = read_metric(page, name)
        wanted = [run.data.metrics[name] for run in experiments.two]
        assert [float(text) for text in shown] == pytest.approx(wanted, abs=6e-4), name
    screenshot(page, "mlflow-comparison", full_page=False)


def test_a_run_that_ended_well_begins_with_its_verdict(
    experiments: Experiments, page: Any, screenshot: Callable[..., Path]
) -> None:
    run = experiments.two[0]
    page.goto(f"{experiments.uri}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}")
    # So small a model gets warnings, and the verdict counts them.
    page.get_by_text(re.compile(r"Every gate passed(, with \d+ warnings?)?\.")).first.wait_for()
    page.get_by_text("sample of 32 parts").first.wait_for()
    page.get_by_text(RECALLS[0]).first.wait_for()
    screenshot(page, "mlflow-run", full_page=False)


def test_a_run_that_stopped_says_where_and_why(
    experiments: Experiments, page: Any, screenshot: Callable[..., Path]
) -> None:
    run = experiments.failed
    page.goto(f"{experiments.uri}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}")
    page.get_by_text("Stopped at train").wait_for()
    page.get_by_text("the loss is not finite").first.wait_for()
    page.get_by_text("Failed", exact=True).first.wait_for()
    screenshot(page, "mlflow-failed", full_page=False)
