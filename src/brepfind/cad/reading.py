"""A STEP file to a shape: look at the bytes first, read with fixed settings, believe nothing."""

from __future__ import annotations

from pathlib import Path

from OCP.BRepCheck import BRepCheck_Analyzer
from OCP.BRepLib import BRepLib
from OCP.BRepTools import BRepTools_ReShape
from OCP.collections import Sequence_TCollection_AsciiString
from OCP.IFSelect import IFSelect_RetDone
from OCP.Interface import Interface_Static
from OCP.Message import Message
from OCP.ShapeFix import ShapeFix_Shape
from OCP.STEPControl import STEPControl_Reader
from OCP.TopAbs import TopAbs_SOLID
from OCP.TopExp import TopExp_Explorer
from OCP.TopoDS import TopoDS, TopoDS_Shape

from brepfind.cad.caps import close_caps
from brepfind.errors import RejectedPart

# What the first bytes of files with the wrong content look like, and what to say.
_FOREIGN = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself: run `git lfs pull`"),
    (b"<", "is a web page or XML, not STEP; the download went wrong"),
    (b"solid ", "is an STL mesh with the wrong ending"),
    (b"ISO-10303-28", "is STEP-XML (part 28), which is not supported"),
    (b"PK\x03\x04", "is a zip archive; unpack it first"),
)


def look(path: Path) -> bytes:
    """The file's bytes, if they can be STEP.

    Open CASCADE must not be given anything else: transferring what it failed to read crashes.

    Raises:
        RejectedPart: ``missing``, ``unreadable`` or ``empty``.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise RejectedPart("missing", "the file does not exist") from None
    except OSError as error:
        raise RejectedPart("unreadable", f"cannot be opened: {error.strerror}") from None
    if not data:
        raise RejectedPart("unreadable", "is 0 bytes long")
    head = data[:256].lstrip(b"\xef\xbb\xbf \t\r\n\f\v\0")
    if not head:
        raise RejectedPart("unreadable", "begins with blanks only")
    for mark, message in _FOREIGN:
        if head.startswith(mark):
            raise RejectedPart("unreadable", message)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[1:2] == b"\0":
        raise RejectedPart("unreadable", "is UTF-16 text; STEP files are ASCII")
    if not head.startswith(b"ISO-10303-21"):
        raise RejectedPart("unreadable", "does not begin with ISO-10303-21")
    if b"DATA" not in data:
        raise RejectedPart("unreadable", "has no DATA section")
    if data.rfind(b"ENDSEC") < data.find(b"DATA"):
        raise RejectedPart("unreadable", "is cut off: its DATA section does not end")
    return data


def read(path: Path) -> tuple[TopoDS_Shape, str]:
    """The file's shape in millimetres, and the unit it is written in.

    Raises:
        RejectedPart: ``unreadable`` or ``empty``.
    """
    # Process-wide settings, so they are set for each read and not trusted.
    Interface_Static.SetCVal_s("xstep.cascade.unit", "MM")
    reader = STEPControl_Reader()
    with path.open("rb") as file:
        # By its number, for Open CASCADE knows no names that are not UTF-8.
        status = reader.ReadFile(f"/proc/self/fd/{file.fileno()}")
    if status != IFSelect_RetDone:
        raise RejectedPart("unreadable", "Open CASCADE cannot read it as STEP")
    if reader.NbRootsForTransfer() < 1:
        raise RejectedPart("empty", "it holds no shape")
    reader.SetSystemLengthUnit(1.0)
    unit = _unit(reader)
    reader.TransferRoots()
    shape = reader.OneShape()
    if shape is None or shape.IsNull():
        raise RejectedPart("empty", "nothing in it could be turned into a shape")
    return shape, unit


def _unit(reader: STEPControl_Reader) -> str:
    lengths, angles, solid_angles = (Sequence_TCollection_AsciiString() for _ in range(3))
    reader.FileUnits(lengths, angles, solid_angles)
    names = {lengths.Value(i).ToCString().lower() for i in range(1, lengths.Length() + 1)}
    if not names:
        return "unknown"
    return "+".join(sorted(_SHORT.get(name, name)[:32] for name in names))


_SHORT = {
    "millimetre": "mm",
    "centimetre": "cm",
    "metre": "m",
    "kilometre": "km",
    "micrometre": "um",
    "inch": "inch",
    "'inch'": "inch",
    "foot": "foot",
}


def is_valid(shape: TopoDS_Shape) -> bool:
    """Open CASCADE's own verdict."""
    return bool(BRepCheck_Analyzer(shape).IsValid())


def heal(shape: TopoDS_Shape) -> TopoDS_Shape:
    """One attempt at making a shape valid, and its closed solids' faces look outward."""
    fixer = ShapeFix_Shape(close_caps(shape))
    fixer.Perform()
    return _outward(fixer.Shape())


def _outward(shape: TopoDS_Shape) -> TopoDS_Shape:
    exchange = BRepTools_ReShape()
    walk = TopExp_Explorer(shape, TopAbs_SOLID)
    while walk.More():
        solid = walk.Current()
        turned = TopoDS.Solid(solid.Located(solid.Location()))
        if BRepLib.OrientClosedSolid_s(turned) and not turned.IsEqual(solid):
            exchange.Replace(solid, turned)
        walk.Next()
    return exchange.Apply(shape)


def quiet() -> None:
    """Keep Open CASCADE from printing; called once in each worker."""
    for printer in list(Message.DefaultMessenger_s().Printers()):
        Message.DefaultMessenger_s().RemovePrinter(printer)
