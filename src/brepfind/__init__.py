"""brepfind: find 3D CAD parts from a sentence. It never lies quietly."""

__version__ = "0.1.0"
