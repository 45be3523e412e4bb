import sys
from pathlib import Path

# Ranks import the test's module by name, in a process of their own.
ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)
