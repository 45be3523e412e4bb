"""Numbers as a person reads them."""

from __future__ import annotations

from brepfind.report import words


def test_shares() -> None:
    assert [words.percent(value) for value in (0.625, 1.0, 0.0, None)] == [
        "62.5 %",
        "100.0 %",
        "0.0 %",
        "–",
    ]


def test_recalls_have_their_intervals_where_they_are_known() -> None:
    table = {
        "R_at_1": 0.5,
        "R_at_5": 0.75,
        "R_at_10": 1.0,
        "interval_95": {"R_at_1": [0.25, 0.625]},
    }
    assert words.recalls(table) == [
        {"value": "50.0 %", "interval": "25.0 to 62.5"},
        {"value": "75.0 %", "interval": ""},
        {"value": "100.0 %", "interval": ""},
    ]
    assert words.interval({"interval_95": None}, "R_at_1") == ""


def test_ranks_and_counts() -> None:
    assert [words.rank(value) for value in (1.0, 2.5, None)] == ["1", "2.5", "–"]
    assert [words.count(value) for value in (7.0, 1234567, None)] == [
        "7",
        "1\u202f234\u202f567",
        "–",
    ]
    assert [words.many(n, "part") for n in (0, 1, 2)] == ["0 parts", "1 part", "2 parts"]
    assert words.many(2, "part has", "parts have") == "2 parts have"


def test_numbers_of_any_size_and_words() -> None:
    values = (0.00676117, 46.291, 3, 12345, "nan", float("nan"), True)
    assert [words.number(value) for value in values] == [
        "0.00676",
        "46.3",
        "3",
        "12\u202f345",
        "nan",
        "nan",
        "True",
    ]
