import os
import subprocess
import sys


def test_a_dgl_that_does_not_load_is_explained(tmp_path):
    """A newer DGL fails on a library that it has not got, with a message about that alone."""
    (tmp_path / "dgl").mkdir()
    (tmp_path / "dgl" / "__init__.py").write_text("raise FileNotFoundError('no libgraphbolt.so')")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    code = (
        "from brepfind.errors import UserError\n"
        "try:\n    import brepfind.graphs.collate\n"
        "except UserError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "no libgraphbolt.so" in done.stdout and "dgl 1.1.3" in done.stdout
    assert 'pip install "brepfind[graphs]"' in done.stdout
