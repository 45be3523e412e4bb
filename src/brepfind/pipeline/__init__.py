"""One function per stage: inputs, work, gate, evidence. The stage scripts and the command line
both call them through :func:`brepfind.pipeline.runner.run_stage`.
"""
