"""A part's mesh as a GLB, the binary form of glTF 2.0, for a viewer in the browser."""

from __future__ import annotations

import numpy as np
import pygltflib as gltf
from numpy.typing import NDArray

from brepfind.cad.mesh import PartMesh

# Bumped when the same mesh would give another file.
VERSION = 1

_PART, _EDGE = (0.33, 0.46, 0.58, 1.0), (0.012, 0.02, 0.03, 1.0)  # linear RGBA
_LIFT = 0.001  # of the part's longest side: edges stand above the faces instead of in them

Points = NDArray[np.float32]


def glb(mesh: PartMesh) -> bytes:
    """The faces, smooth within a face and sharp between two, and their outlines.

    The part is moved to the origin, scaled to a longest side of 1 and turned so that its z axis
    points up, as glTF's y does: a viewer's planes near and far then suit a pin and a crane alike.
    """
    points, normals = _unit(mesh.points), _normals(mesh)
    pieces: list[tuple[Points, Points | None, NDArray, int, int]] = [
        (points, normals, mesh.triangles.ravel(), gltf.TRIANGLES, 0)
    ]
    if mesh.outlines:  # a torus has none
        pairs = np.concatenate([np.c_[line[:-1], line[1:]] for line in mesh.outlines])
        pieces.append((points + np.float32(_LIFT) * normals, None, pairs.ravel(), gltf.LINES, 1))
    document = gltf.GLTF2(
        asset=gltf.Asset(version="2.0", generator="brepfind"),
        scene=0,
        scenes=[gltf.Scene(nodes=[0])],
        # A quarter turn about x, as a quaternion: z becomes up.
        nodes=[gltf.Node(mesh=0, rotation=[-(0.5**0.5), 0.0, 0.0, 0.5**0.5])],
        materials=[
            _material(_PART, metallic=0.1, rough=0.55, double=True),
            _material(_EDGE, metallic=0.0, rough=1.0, double=False),
        ],
        meshes=[gltf.Mesh(primitives=[])],
        buffers=[gltf.Buffer(byteLength=0)],
    )
    blob = bytearray()
    for place, vectors, corners, mode, material in pieces:
        attributes = gltf.Attributes(POSITION=_put(document, blob, place, limits=True))
        if vectors is not None:
            attributes.NORMAL = _put(document, blob, vectors)
        document.meshes[0].primitives.append(
            gltf.Primitive(
                attributes=attributes,
                indices=_put(document, blob, corners.astype(np.uint32)),
                mode=mode,
                material=material,
            )
        )
    document.buffers[0].byteLength = len(blob)
    document.set_binary_blob(bytes(blob))
    return b"".join(document.save_to_bytes())


def _unit(points: NDArray[np.float64]) -> Points:
    low, high = points.min(axis=0), points.max(axis=0)
    longest = float((high - low).max()) or 1.0
    return ((points - (low + high) / 2) / longest).astype(np.float32)


def _normals(mesh: PartMesh) -> Points:
    """Of each point: the sum over its triangles, by area. Faces share no points."""
    a, b, c = (mesh.points[mesh.triangles[:, corner]] for corner in range(3))
    across = np.cross(b - a, c - a)
    sums = np.zeros_like(mesh.points)
    for corner in range(3):
        np.add.at(sums, mesh.triangles[:, corner], across)
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    # A point of slivers only has none; glTF asks for unit vectors all the same.
    up = np.array([0.0, 0.0, 1.0])
    return np.where(length > 0, sums / np.where(length > 0, length, 1.0), up).astype(np.float32)


def _material(
    colour: tuple[float, ...], *, metallic: float, rough: float, double: bool
) -> gltf.Material:
    return gltf.Material(
        pbrMetallicRoughness=gltf.PbrMetallicRoughness(
            baseColorFactor=list(colour), metallicFactor=metallic, roughnessFactor=rough
        ),
        doubleSided=double,
        alphaCutoff=None,
    )


def _put(document: gltf.GLTF2, blob: bytearray, values: NDArray, *, limits: bool = False) -> int:
    """Add an array to the file; returns the number of its accessor."""
    corners = values.dtype == np.uint32
    raw = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
    document.bufferViews.append(
        gltf.BufferView(
            buffer=0,
            byteOffset=len(blob),
            byteLength=len(raw),
            target=gltf.ELEMENT_ARRAY_BUFFER if corners else gltf.ARRAY_BUFFER,
        )
    )
    blob += raw  # all numbers have four bytes, so every array begins where one may
    document.accessors.append(
        gltf.Accessor(
            bufferView=len(document.bufferViews) - 1,
            componentType=gltf.UNSIGNED_INT if corners else gltf.FLOAT,
            count=len(values),
            type=gltf.SCALAR if corners else gltf.VEC3,
            min=values.min(axis=0).tolist() if limits else None,
            max=values.max(axis=0).tolist() if limits else None,
        )
    )
    return len(document.accessors) - 1
