import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from brepfind.distributed import watch
from brepfind.distributed.gather import gather_with_grad
from brepfind.distributed.group import Place, assert_no_complex, open_group
from brepfind.distributed.watch import who_is_missing
from brepfind.errors import CheckFailed, UserError
from tests.ranks import run_ranks, values


def _talk() -> dict:
    with open_group(20.0, device="cpu") as group:
        order = []
        with group.local_rank_zero_first("model"):
            order.append(time.monotonic())
            time.sleep(0.3)
        seen = group.gather(order[0], "order")
        with pytest.raises(CheckFailed, match=r"steps differs .*rank 0: 3, rank 1: 4"):
            group.same("steps", 3 + group.rank)
        rows = torch.arange(6.0).view(3, 2) + 10 * group.rank
        # A transposed input is not contiguous, and the gradient of a sum is an expanded tensor.
        leaf = rows.t().clone().requires_grad_()
        gathered = gather_with_grad(leaf.t())
        gathered.sum().backward()
        return {
            "table": group.table([group.rank, 7], "table"),
            "any": group.any(group.rank == 1, "any"),
            "all": group.all(group.rank == 1, "all"),
            "first": group.from_first(f"said by {group.rank}", "first"),
            "waited": seen[1] - seen[0],
            "gathered": gathered.detach().tolist(),
            "gradient": leaf.grad.tolist(),
            "control": dist.get_backend(group._control),
        }


def test_two_ranks_agree_gather_and_wait_for_local_rank_zero() -> None:
    both = values(run_ranks(_talk, 2))
    for said in both:
        assert said["table"] == [[0, 7], [1, 7]]
        assert (said["any"], said["all"]) == (True, False)
        assert said["first"] == "said by 0"
        assert said["waited"] >= 0.3
        assert said["gathered"] == [[0, 1], [2, 3], [4, 5], [10, 11], [12, 13], [14, 15]]
        assert said["gradient"] == [[2.0] * 3] * 2  # both ranks' losses hold every row
        assert said["control"] == "gloo"


def _work_long_then_meet() -> float:
    with open_group(1.5, device="cpu") as group:
        if group.rank == 0:
            for _ in range(12):  # longer than the limit, but with signs of life
                time.sleep(0.25)
                group.watch.beat("write")
        began = time.monotonic()
        group.barrier("written")
        return time.monotonic() - began


def test_a_barrier_waits_for_a_rank_that_works_longer_than_the_limit() -> None:
    assert values(run_ranks(_work_long_then_meet, 2))[1] > 2.5


def _compute_long_then_meet() -> float:
    with open_group(1.5, device="cpu") as group:
        if group.rank == 0:
            with group.watch.computing("judge"):
                end = time.process_time() + 3.0
                while time.process_time() < end:
                    pass
        began = time.monotonic()
        group.barrier("judged")
        return time.monotonic() - began


def test_a_rank_that_computes_longer_than_the_limit_without_a_beat_is_alive() -> None:
    assert values(run_ranks(_compute_long_then_meet, 2))[1] > 2.5


def _one_sleeps(folder: str, computing: bool) -> None:
    if computing:
        watch._POLL_S, watch._WORK_S = 1e-3, 0.05  # the watching thread's own work must not count
    with open_group(2.0, device="cpu", stacks=folder) as group:
        said = Path(folder) / f"said-{group.rank}"
        group.watch.on_end = lambda end: said.write_text(f"{end.kind}: {end.message}")
        if group.rank == 1:
            if computing:
                with group.watch.computing("load batch"):
                    time.sleep(60)
            group.watch.beat("load batch")
            time.sleep(60)
        group.table([1], "agree")


@pytest.mark.parametrize("computing", [False, True])
def test_a_hang_ends_all_ranks_names_the_missing_one_and_leaves_stacks(tmp_path, computing) -> None:
    ended = run_ranks(_one_sleeps, 2, str(tmp_path), computing, limit_s=30)
    assert [rank.code for rank in ended] == [1, 1]
    assert all(rank.seconds < 2.0 + 10.0 for rank in ended)
    assert "in _one_sleeps" in (tmp_path / "stacks-rank1.txt").read_text()
    assert "all_gather" in (tmp_path / "stacks-rank0.txt").read_text()
    for rank, place in ((0, "agree"), (1, "load batch")):
        assert (tmp_path / f"said-{rank}").read_text() == (
            f"hang: no progress for 2 s in '{place}'; "
            "did not arrive: rank 1 (last seen in 'load batch')"
        )


def _one_fails() -> None:
    with open_group(60.0, device="cpu") as group:
        if group.rank == 1:
            raise UserError("no such file: parts.csv")
        group.barrier("start")


def test_a_rank_that_fails_ends_the_others_at_once_with_its_message() -> None:
    ended = run_ranks(_one_fails, 2, limit_s=30)
    assert ended[1].code == 2
    assert ended[0].code == 1
    assert "rank 1 failed: UserError: no such file: parts.csv" in ended[0].error
    assert ended[0].seconds < 15


@pytest.mark.parametrize(
    ("states", "missing"),
    [
        ({0: (True, False, 4), 1: (False, False, 3)}, (1,)),
        ({0: (True, False, 4), 1: (True, True, 4)}, (1,)),  # its process is gone
        ({0: (True, False, 4)}, (1,)),  # never seen
        ({0: (True, False, 4), 1: (True, False, 6)}, (0,)),  # all wait: who is behind
        ({0: (True, False, 4), 1: (True, False, 4)}, ()),
    ],
)
def test_who_is_missing(states, missing) -> None:
    plain = {
        rank: {"waiting": waiting, "dead": dead, "meeting": meeting}
        for rank, (waiting, dead, meeting) in states.items()
    }
    assert who_is_missing(plain, 2) == missing


def test_one_process_needs_no_group(monkeypatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with open_group(5.0) as group:
        assert group.table([1, 2], "x") == [[1, 2]]
        assert group.first and group.world == 1
        with group.local_rank_zero_first("model"):
            pass
    rows = torch.ones(2, 2)
    assert gather_with_grad(rows) is rows


def test_environment_that_does_not_fit(monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(UserError, match="do not fit together"):
        Place.from_environment()


def test_complex_tensors_are_named() -> None:
    module = nn.Linear(2, 2)
    assert_no_complex(module, "the model")
    module.register_buffer("freqs_cis", torch.ones(2, dtype=torch.complex64))
    with pytest.raises(CheckFailed, match=r"1 complex tensors.*: freqs_cis; store real"):
        assert_no_complex(module, "the model")


def test_a_rank_is_named_with_its_machine_where_that_is_another_one() -> None:
    assert watch._named(1, {"host": watch._HOST}) == "rank 1"
    assert watch._named(1, {"host": "gpu-b"}) == "rank 1 on gpu-b"
    assert watch._named(1, None) == "rank 1"  # never seen
