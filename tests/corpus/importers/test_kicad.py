"""KiCad: footprints' words brought to the models they use, links and scripts taken out."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from brepfind.corpus.importers.gathered import write_gathered
from brepfind.corpus.importers.kicad import (
    DATA_SET,
    Footprint,
    gather,
    plain_words,
    read_footprint,
)
from brepfind.errors import InputError

LINK = "https://example.com/a(1)_b.pdf"


def footprint(descr: str = "", tags: str = "", *models: str) -> str:
    lines = ['(footprint "X" (version 20211014) (generator pcbnew)', '  (layer "F.Cu")']
    lines += [f'  (descr "{descr}")'] * bool(descr) + [f'  (tags "{tags}")'] * bool(tags)
    lines += ['  (pad "1" smd rect (at 0 0) (size 1 1) (layers "F.Cu"))']
    lines += [
        f'  (model "${{KICAD6_3DMODEL_DIR}}/{model}"\n    (offset (xyz 0 0 0))\n  )'
        for model in models
    ]
    return "\n".join([*lines, ")\n"])


def share(root: Path, **footprints: str | bytes) -> Path:
    folder = root / "footprints/R.pretty"
    folder.mkdir(parents=True)
    for name, content in footprints.items():
        file = folder / f"{name}.kicad_mod"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (
            f"JST GH connector, SM05B ({LINK}), generated with kicad-footprint-generator",
            "JST GH connector, SM05B",
        ),
        (
            f"QFN, 32 Pin ({LINK}#page=468), generated with kicad-footprint-generator ipc_x.py",
            "QFN, 32 Pin",
        ),
        (
            f"TSSOP, 24 Pin (JEDEC MO-153 {LINK}, {LINK}), generated with kicad-footprint",
            "TSSOP, 24 Pin (JEDEC MO-153)",
        ),
        (
            "Block, 9 pins, pad 3mm, see , script-generated with , script-generated using "
            "https://github.com/a/scripts/TerminalBlock_WAGO",
            "Block, 9 pins, pad 3mm",
        ),
        ("socket, 1x32, 2.54mm (from Kicad 4.0.7), script generated", "socket, 1x32, 2.54mm"),
        (f"Inductor, 6.0mm (Script generated with StandardBox.py) ({LINK})", "Inductor, 6.0mm"),
        (f"TO-92, wide (see {LINK} and {LINK})", "TO-92, wide"),
        ("L_1812 StepUp generated footprint, www.example.com/x", "L_1812"),
        ("Header (2x05), pitch 1.27mm; [UDFN]", "Header (2x05), pitch 1.27mm; [UDFN]"),
        ("Generator, seen from above", "Generator, seen from above"),
        (LINK, ""),
    ],
)
def test_links_and_scripts_go_and_the_words_stay(text: str, plain: str) -> None:
    assert plain_words(text) == plain


def test_words_of_every_footprint_come_to_its_model(steps: Callable[..., Path]) -> None:
    root = steps("3dmodels/R.3dshapes/R_0402.step", "3dmodels/R.3dshapes/R_0603.step")
    share(
        root,
        A=footprint("resistor, 0402", "R SMD", "R.3dshapes/R_0402.wrl"),
        B=footprint('resistor, \\"hand\\" pads', "R SMD", "R.3dshapes/R_0402.step"),
        C=footprint(LINK, "R 0603", "R.3dshapes/R_0603.wrl", "R.3dshapes/none.wrl"),
        D=footprint("fiducial", ""),
        E=footprint("x", "", "../../../../etc/passwd.wrl"),
        F=footprint("cut off", "", "R.3dshapes/R_0402.wrl")[:-4],
        G='(module G (layer F.Cu) (descr old) (tags "") (model R.3dshapes/R_0603.wrl))',
        H=b"\xff\xfe\x00 not text",
        I="(kicad_pcb (version 1))",
        J="",
    )
    found = gather(root)
    first, second = "R.3dshapes/R_0402.step", "R.3dshapes/R_0603.step"
    assert found.captions == {
        first: {"resistor, 0402": -1, "R SMD": -1, 'resistor, "hand" pads': -1},
        second: {"R 0603": -1, "old": -1},
    }
    assert {row[2] for row in found.parts.values()} == {"R"}
    reasons = sorted((reason, what.split(":")[0]) for reason, what in found.left_out)
    assert reasons == [
        ("caption_empty", "R.pretty/C.kicad_mod"),
        ("caption_empty", "R.pretty/G.kicad_mod"),
        ("caption_repeated", "R.pretty/B.kicad_mod"),
        ("footprint_model_not_there", "R.pretty/C.kicad_mod"),
        ("footprint_model_not_there", "R.pretty/E.kicad_mod"),
        ("footprint_unreadable", "F.kicad_mod"),
        ("footprint_unreadable", "H.kicad_mod"),
        ("footprint_unreadable", "I.kicad_mod"),
        ("footprint_unreadable", "J.kicad_mod"),
        ("footprint_without_model", "R.pretty/D.kicad_mod"),
    ]


def test_values_without_quotes_are_read_as_written(tmp_path: Path) -> None:
    file = tmp_path / "old.kicad_mod"
    for descr, tags in (("0402", "01005"), ("t", "nil"), ("1.50", "1e3")):
        file.write_text(f"(module R_{descr} (descr {descr}) (tags {tags}) (model R/{descr}.wrl))")
        assert read_footprint(file) == Footprint(descr, tags, (f"R/{descr}.wrl",))


@pytest.mark.parametrize("end", ['(descr "cut off', '(descr "cut\\', "(descr cut\\", "(descr '"])
def test_a_footprint_that_is_cut_within_a_value_is_refused(tmp_path: Path, end: str) -> None:
    file = tmp_path / "cut.kicad_mod"
    file.write_text(f"(module R {end}")
    with pytest.raises(InputError, match=r"cut\.kicad_mod: is not a whole S-expression"):
        read_footprint(file)


def test_a_footprint_whose_name_is_not_utf8_is_left_out_by_name(
    steps: Callable[..., Path], tmp_path: Path
) -> None:
    root = steps("3dmodels/R.3dshapes/R.step")
    share(root, A=footprint("resistor", "R SMD", "R.3dshapes/R.wrl"))
    name = os.fsdecode(b"sch\xfctz.kicad_mod")
    (root / "footprints/R.pretty" / name).write_text(footprint("relay", "K"))
    write_gathered(gather(root), DATA_SET, tmp_path / "out")
    table = (tmp_path / "out/left_out.csv").read_text()
    assert '"footprint_without_model","R.pretty/sch\\udcfctz.kicad_mod"' in table


def test_deeply_nested_brackets_are_no_footprint(tmp_path: Path) -> None:
    file = tmp_path / "deep.kicad_mod"
    file.write_text("(" * 200_000)
    with pytest.raises(InputError, match=r"deep\.kicad_mod: is not a whole S-expression"):
        read_footprint(file)


def test_a_folder_that_is_no_share_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no folder '3dmodels'; give KiCad's share folder"):
        gather(tmp_path)
