"""params.yaml, read strictly.

Numbers are read as YAML 1.2 does, which is how DVC reads and writes them: ``1e-4`` is a number
here, while PyYAML alone (YAML 1.1) takes it for text and reads ``no`` as false. An unknown key,
text where a number belongs, NaN, or a value out of range is an error that names the key, the value
and what is allowed.

Each room's own frozen config stands beside the class it builds and derives from :class:`Section`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from brepfind.errors import ParamsError


class Section(BaseModel):
    """One frozen section of params.yaml; strict types, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


SectionT = TypeVar("SectionT", bound=Section)


class _Yaml12Loader(yaml.SafeLoader):
    """PyYAML with the scalar rules of YAML 1.2's core schema, and no duplicate keys."""


_Yaml12Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _Yaml12Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first
    )


def _int_12(loader: _Yaml12Loader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    # int(text, 0) refuses leading zeros, which YAML 1.2 allows in decimals.
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _float_12(loader: _Yaml12Loader, node: yaml.ScalarNode) -> float:
    text = loader.construct_scalar(node)
    return float(text.replace(".inf", "inf").replace(".nan", "nan")) if "n" in text else float(text)


def _mapping_once(loader: _Yaml12Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if key in seen:
            raise ParamsError(f"key {key!r} stands twice (line {key_node.start_mark.line + 1})")
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Yaml12Loader.add_constructor("tag:yaml.org,2002:int", _int_12)
_Yaml12Loader.add_constructor("tag:yaml.org,2002:float", _float_12)
_Yaml12Loader.add_constructor("tag:yaml.org,2002:map", _mapping_once)


def read_params(path: Path) -> dict[str, Any]:
    """All sections as plain data.

    Raises:
        ParamsError: if the file is missing, is not YAML, or is not a mapping of sections.
    """
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), Loader=_Yaml12Loader)  # noqa: S506
    except OSError as error:
        raise ParamsError(f"{path}: cannot be read ({error.strerror})") from error
    except yaml.YAMLError as error:
        raise ParamsError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    except ParamsError as error:
        raise ParamsError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise ParamsError(f"{path}: must be a mapping of sections, one per stage")
    return value


def load_section(path: Path, name: str, config: type[SectionT]) -> SectionT:
    """One section of a params file, checked.

    Raises:
        ParamsError: naming every key that is wrong, its value, and what is allowed.
    """
    sections = read_params(path)
    if name not in sections:
        known = ", ".join(sorted(map(str, sections)))
        raise ParamsError(f"{path}: has no section {name!r} (there are: {known})")
    return check_section(sections[name], name, config, source=str(path))


def check_section(
    value: Any, name: str, config: type[SectionT], source: str = "params.yaml"
) -> SectionT:
    """A section given as plain data, checked as :func:`load_section` does."""
    if not isinstance(value, dict):
        raise ParamsError(f"{source}: section {name!r} must be a mapping, got {value!r}")
    try:
        return config.model_validate(value)
    except ValidationError as error:
        complaints = "; ".join(_complaint(name, config, item) for item in error.errors())
        raise ParamsError(f"{source}: {complaints}") from None


def _complaint(name: str, config: type[Section], item: Any) -> str:
    key = ".".join([name, *map(str, item["loc"])])
    if item["type"] == "extra_forbidden":
        allowed = ", ".join(sorted(config.model_fields))
        return f"{key} is not a known key (known in {name}: {allowed})"
    if item["type"] == "missing":
        return f"{key} is missing"
    message = item["msg"]
    message = message[0].lower() + message[1:]
    return f"{key} is {item['input']!r}: {message}"
