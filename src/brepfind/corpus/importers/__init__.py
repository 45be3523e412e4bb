"""Data sets that people have, as manifests that ``prepare`` reads; one module per data set."""
