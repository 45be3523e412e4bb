"""What a person reads of a run: figures and the report."""
