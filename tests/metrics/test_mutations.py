"""The kept list of mutations still names rules that are there."""

import importlib.util
import sys
from pathlib import Path

import pytest

_path = Path(__file__).parent / "mutations.py"
_spec = importlib.util.spec_from_file_location("brepfind_mutations", _path)
mutations = importlib.util.module_from_spec(_spec)
sys.modules["brepfind_mutations"] = mutations  # its dataclass looks itself up
_spec.loader.exec_module(mutations)


@pytest.mark.parametrize("mutation", mutations.MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_rule_stands_once_in_its_file(mutation):
    text = (mutations.ROOT / mutation.file).read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1
    assert mutation.new != mutation.old
    assert (mutations.ROOT / mutation.tests).is_file()


def test_names_are_unique():
    names = [mutation.name for mutation in mutations.MUTATIONS]
    assert len(set(names)) == len(names)
