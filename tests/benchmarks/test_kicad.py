"""What the KiCad bench rests on: its list, its split, its lookup by name, and its UV-Net."""

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.kicad_choose import LIST, balanced, family_of, sides_of
from benchmarks.kicad_lookup import path_scores, words
from benchmarks.uvnet import UVNet, _FaceRound
from brepfind.cad.arrays import PartArrays
from brepfind.graphs.collate import collate
from brepfind.graphs.pairwise import pairwise
from brepfind.models.encoder import EncoderConfig


def test_the_list_is_whole_and_no_family_stands_on_two_sides() -> None:
    table = pd.read_csv(LIST, dtype=str)
    assert len(table) == table["model_id"].nunique() == 2000
    assert table["sha256"].str.fullmatch("[0-9a-f]{64}").all()
    assert table.groupby("family")["split"].nunique().max() == 1
    assert table["family"].tolist() == [family_of(name) for name in table["model_id"]]
    # The same bytes are the same shape.
    assert table.groupby("sha256")["split"].nunique().max() == 1
    assert balanced(table)


def test_a_family_is_the_words_without_numbers() -> None:
    assert family_of("C_THT.3dshapes/C_Rect_L7.0mm_P5.0mm_MKT.step") == "C_THT/C_Rect_MKT"
    assert family_of("P.3dshapes/QFN-24-1EP_4x4mm.step") == "P/QFN"
    assert family_of("P.3dshapes/1x03.step") == "P/"


def test_twins_tie_families_together() -> None:
    families = ["A/x", "A/x", "A/y", "A/z", "B/x", "B/x"]
    twins = np.array([0, 1, 1, 2, 3, 4])
    for seed in range(20):
        sides = sides_of(families, twins, list("abcdef"), seed)
        assert sides[0] == sides[1] == sides[2]
        assert sides[4] == sides[5]


def test_a_number_is_a_word_whatever_stands_around_it() -> None:
    assert words("C_Rect_L7.0mm_P5.00mm") == ["c", "rect", "l", "7", "mm", "p", "5", "mm"]
    assert words("length 7mm, Ø5") == ["length", "7", "mm", "ø", "5"]


def test_the_lookup_finds_the_file_that_shares_words_and_knows_nothing_else() -> None:
    paths = ["C/C_Rect_L7.0mm.step", "C/C_Rect_L9.0mm.step", "D/D_Axial.step"]
    scores = path_scores(["rect 9 mm", "unheard of", "axial diode"], paths)
    assert scores[0].argmax() == 1
    assert not scores[1].any()
    assert scores[2].argmax() == 2


def test_uvnet_passes_messages_by_the_papers_equation() -> None:
    torch.manual_seed(0)
    layer = _FaceRound()
    layer.mlp, layer.norm = torch.nn.Identity(), torch.nn.Identity()
    torch.nn.init.constant_(layer.eps, 0.5)
    face, edge = torch.randn(5, 64), torch.randn(7, 64)
    src, dst = torch.randint(0, 5, (7,)), torch.randint(0, 4, (7,))
    matrices = layer.matrix(edge).view(7, 64, 64)
    taken = torch.zeros(5, 64)
    for number in range(7):
        taken[dst[number]] += 1.5 * face[src[number]] @ matrices[number]
    expected = torch.nn.functional.leaky_relu(taken)
    torch.testing.assert_close(layer(face, edge, src, dst), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.filterwarnings("error")
def test_uvnet_gives_a_part_the_same_alone_and_in_a_batch(parts: list[PartArrays]) -> None:
    sizes = EncoderConfig(
        dim=64, layers=1, heads=8, kv_heads=4, feed_forward=64, dropout=0.1, max_faces=64
    )
    model = UVNet(sizes, seed=1).eval()
    pairs = [pairwise(part, "inside") for part in parts]
    with torch.no_grad():
        together = model(collate(parts, pairs)).graph
        alone = [
            model(collate([part], [pair])).graph for part, pair in zip(parts, pairs, strict=True)
        ]
    assert together.shape == (len(parts), 128)
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-5, atol=1e-6)
    assert (together[0] - together[1]).abs().max() > 1e-3
