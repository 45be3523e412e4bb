import json
import math
from pathlib import Path

from brepfind.events import EventFile, read_events


def test_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "events.jsonl"
    file = EventFile(path)
    file.point("train/loss", 1.5, 3)
    file.point("train/loss", math.nan, 4)
    file.happened("step_skipped", {"parts": ("a", "b"), "scale": math.inf, "at": Path("x")})
    file.close()
    records = [record for record, _ in read_events(path)]
    assert [record.get("value") for record in records] == [1.5, "nan", None]
    assert records[2]["facts"] == {"parts": ["a", "b"], "scale": "inf", "at": "x"}
    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=lambda name: 1 / 0)


def test_reading_goes_on_where_it_stopped_and_leaves_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"point": "a"}\n{"point": "b"')
    records = list(read_events(path))
    assert [record["point"] for record, _ in records] == ["a"]
    offset = records[-1][1]
    with path.open("a") as file:
        file.write("}\n")
    assert [record["point"] for record, _ in read_events(path, offset)] == ["b"]


def test_a_second_writer_appends(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for step in range(2):
        file = EventFile(path)
        file.point("a", step, step)
        file.close()
    assert len(list(read_events(path))) == 2
