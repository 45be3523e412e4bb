"""RoPE, the BRepFormer encoder, the text tower and the dual encoder; torch on ``PartBatch``."""
