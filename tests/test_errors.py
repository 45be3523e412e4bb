import pickle

from brepfind import errors


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    classes = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.BrepfindError)
    }
    assert errors.__doc__ is not None
    for name in classes:
        assert name in errors.__doc__
    assert {name: value.exit_code for name, value in classes.items()} == {
        "BrepfindError": 2,
        "UserError": 2,
        "ParamsError": 2,
        "InputError": 2,
        "RejectedPart": 2,
        "CheckpointError": 2,
        "VersionMismatch": 2,
        "CheckFailed": 1,
        "Interrupted": 130,
    }


def test_a_rejection_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(errors.RejectedPart("timeout", "took 60 s")))
    assert (error.reason, error.message) == ("timeout", "took 60 s")
    assert str(error) == "timeout: took 60 s"
