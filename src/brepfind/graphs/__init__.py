"""The graph of a part: its fields, its store, what follows from it, and batches of parts."""
