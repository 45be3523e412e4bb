"""Which machines train together, and what each of their torchruns is told."""

import pytest

from brepfind.distributed.nodes import Nodes
from brepfind.errors import UserError


def test_one_machine_needs_no_place_to_meet() -> None:
    for environment in ({}, {"BREPFIND_NODES": "1"}, {"BREPFIND_RENDEZVOUS": "10.0.0.1:29500"}):
        alone = Nodes.from_environment(environment)
        assert alone.torchrun(2) == ["--standalone", "--nproc-per-node=2"]


@pytest.mark.parametrize(("node", "said"), [(0, "--node-rank=0"), (1, "--node-rank=1")])
def test_two_machines_share_the_ranks(node: int, said: str) -> None:
    two = Nodes.from_environment({"BREPFIND_NODES": "2", "BREPFIND_RENDEZVOUS": "10.0.0.1:29500"})
    assert two == Nodes.at("10.0.0.1:29500", 2)
    assert two.torchrun(8, node) == [
        "--nnodes=2",
        said,
        "--master-addr=10.0.0.1",
        "--master-port=29500",
        "--nproc-per-node=4",
    ]


def test_ranks_that_cannot_be_shared_evenly() -> None:
    with pytest.raises(UserError, match=r"train\.processes is 3, .* shared evenly by 2 of them"):
        Nodes.at("10.0.0.1:29500", 2).torchrun(3)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"BREPFIND_NODES": "two"}, "BREPFIND_NODES is 'two': give the number of machines"),
        ({"BREPFIND_NODES": "0"}, "BREPFIND_NODES is '0'"),
        ({"BREPFIND_NODES": "2"}, "BREPFIND_RENDEZVOUS: '' is no place to meet: give HOST:PORT"),
        ({"BREPFIND_NODES": "2", "BREPFIND_RENDEZVOUS": "10.0.0.1"}, "'10.0.0.1' is no place"),
        ({"BREPFIND_NODES": "2", "BREPFIND_RENDEZVOUS": "a:66000"}, "'a:66000' is no place"),
        ({"BREPFIND_NODES": "2", "BREPFIND_RENDEZVOUS": ":29500"}, "':29500' is no place"),
    ],
)
def test_what_cannot_be_used_is_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Nodes.from_environment(environment)


def test_an_address_of_version_six_keeps_its_colons() -> None:
    assert Nodes.at("[fd00::1]:29500", 2).host == "fd00::1"
