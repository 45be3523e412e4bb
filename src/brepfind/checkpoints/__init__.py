"""Read, scan, sanitize and write checkpoints.

An architecture reaches this room as a plain table of key, dtype and shape
(:data:`brepfind.checkpoints.compare.Table`); the room knows no model.
"""
