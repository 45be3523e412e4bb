import math
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from brepfind.errors import ParamsError
from brepfind.params import Section, load_section, read_params


class Config(Section):
    lr: float = Field(gt=0, le=1)
    steps: int = Field(ge=1)
    name: str
    mode: Literal["fast", "slow"]
    on: bool


GOOD = {"lr": "1e-4", "steps": "10", "name": "abc", "mode": "fast", "on": "true"}


def params_file(folder: Path, **changes: str | None) -> Path:
    values = {**GOOD, **changes}
    lines = [f"  {key}: {value}" for key, value in values.items() if value is not None]
    path = folder / "params.yaml"
    path.write_text("stage:\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("1e-05", 1e-5),
        ("1.", 1.0),
        (".5", 0.5),
        ("0x1F", 31),
        ("0o17", 15),
        ("010", 10),
        ("-3", -3),
        ("+3", 3),
        ("1_000", "1_000"),
        ("no", "no"),
        ("on", "on"),
        ("TRUE", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("2001-01-01", "2001-01-01"),
        ("12:30", "12:30"),
        ("'1e-4'", "1e-4"),
        ("-.inf", -math.inf),
    ],
)
def test_scalars_are_read_as_yaml_1_2(tmp_path: Path, text: str, value: object) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"key: {text}\n")
    read = read_params(path)["key"]
    assert read == value
    assert type(read) is type(value)


def test_a_good_section_is_typed_and_frozen(tmp_path: Path) -> None:
    config = load_section(params_file(tmp_path), "stage", Config)
    assert config == Config(lr=1e-4, steps=10, name="abc", mode="fast", on=True)
    with pytest.raises(Exception, match="frozen"):
        config.lr = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"lr": "'1e-4'"}, r"stage\.lr is '1e-4': input should be a valid number"),
        ({"lr": ".nan"}, r"stage\.lr is nan: input should be a finite number"),
        ({"lr": ".inf"}, r"stage\.lr is inf"),
        ({"lr": "nan"}, r"stage\.lr is 'nan'"),
        ({"lr": "2"}, r"stage\.lr is 2: input should be less than or equal to 1"),
        ({"lr": "0"}, r"stage\.lr is 0: input should be greater than 0"),
        ({"steps": "1.5"}, r"stage\.steps is 1\.5: input should be a valid integer"),
        ({"steps": "true"}, r"stage\.steps is True"),
        ({"name": "12"}, r"stage\.name is 12: input should be a valid string"),
        ({"mode": "quick"}, r"stage\.mode is 'quick': input should be 'fast' or 'slow'"),
        ({"on": "yes"}, r"stage\.on is 'yes'"),
        ({"on": None}, r"stage\.on is missing"),
        ({"lrr": "1"}, r"stage\.lrr is not a known key \(known in stage: lr, mode, name, on, step"),
    ],
)
def test_a_bad_value_names_key_value_and_what_is_allowed(
    tmp_path: Path, change: dict[str, str | None], complaint: str
) -> None:
    with pytest.raises(ParamsError, match=complaint):
        load_section(params_file(tmp_path, **change), "stage", Config)


def test_every_complaint_is_listed_at_once(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"stage\.lr .*; stage\.steps "):
        load_section(params_file(tmp_path, lr="9", steps="0"), "stage", Config)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a: 1\na: 2\n", "key 'a' stands twice"),
        ("a: {b: 1, b: 2}\n", "key 'b' stands twice"),
        ("- 1\n", "must be a mapping"),
        ("a: [\n", "is not valid YAML"),
        ("a: !!python/object/apply:os.getcwd []\n", "is not valid YAML"),
    ],
)
def test_a_file_that_is_not_params_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(content)
    with pytest.raises(ParamsError, match=complaint):
        read_params(path)


def test_a_missing_file_and_a_missing_section_are_named(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"gone\.yaml: cannot be read"):
        read_params(tmp_path / "gone.yaml")
    with pytest.raises(ParamsError, match=r"has no section 'train' \(there are: stage\)"):
        load_section(params_file(tmp_path), "train", Config)
