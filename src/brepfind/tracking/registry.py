"""The model in MLflow: logged with its run, registered, and the alias ``champion`` moved or not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow.artifacts import download_artifacts
from mlflow.entities import LoggedModelOutput, LoggedModelStatus
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.tracking import MlflowClient

from brepfind.errors import InputError
from brepfind.files import read_json
from brepfind.log import get_logger
from brepfind.tracking.champion import Decision, Standing, decide, recall

ALIAS = "champion"
STANDING = "validation.json"  # in the model's folder
_MODEL_ID = "model_id"

log = get_logger(__name__)


def register(
    client: MlflowClient, run_id: str, folder: Path, name: str, tags: Mapping[str, str]
) -> tuple[ModelVersion, Decision]:
    """Log a model's folder with a run, register it, and settle who is the champion.

    Where a run has a version already, as when a delivery was cut short, no second one is made.

    Args:
        folder: as :func:`brepfind.tracking.package.write_model` wrote it.
        name: of the registered model, made if it is missing; without ``/`` and ``:``.
        tags: for the version.

    Raises:
        MlflowException, OSError: the store is away, or refuses.
    """
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    new: Standing = read_json(folder / STANDING)
    mine = client.search_model_versions(f"run_id = '{run_id}'")
    told = {"validation_recall": f"{recall(new):.4f}", **tags, "split": new["split"][:12]}
    version = mine[0] if mine else _version(client, run_id, folder, name, told)
    holder = _champion(client, name)
    if holder is not None and str(holder.version) == str(version.version):
        decision = Decision(moves=False, sentence=holder.description or "is the champion")
    else:
        old = None if holder is None else _standing(client, holder)
        decision = decide(new, old, "" if holder is None else str(holder.version))
    # In this order: where a delivery is cut short, the alias tells that the sentence is there.
    client.update_model_version(name, str(version.version), decision.sentence)
    if decision.moves:
        client.set_registered_model_alias(name, ALIAS, str(version.version))
    log.info("MLflow: model %s version %s: %s", name, version.version, decision.sentence)
    return version, decision


def _version(
    client: MlflowClient, run_id: str, folder: Path, name: str, tags: Mapping[str, str]
) -> ModelVersion:
    model_id = _log(client, run_id, folder)
    # A store without a server looks a `models:` address up in MLflow's global store, which may be
    # another one.
    server = client.tracking_uri.startswith("http")
    where = client.get_logged_model(model_id).artifact_location
    return client.create_model_version(
        name,
        f"models:/{model_id}" if server else where,
        run_id,
        tags={**tags, _MODEL_ID: model_id},
        await_creation_for=0,
        model_id=model_id,
    )


def _log(client: MlflowClient, run_id: str, folder: Path) -> str:
    """The id of the logged model, its files delivered."""
    run = client.get_run(run_id)
    known = run.outputs.model_outputs if run.outputs else []
    if known:  # its files may be there in part: they are sent again
        model_id = str(known[0].model_id)
    else:
        logged = client.create_logged_model(run.info.experiment_id, "search", run_id)
        model_id = logged.model_id
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])
    described = Model.load(str(folder))
    described.model_id = described.model_uuid = model_id
    described.run_id = run_id
    described.artifact_path = client.get_logged_model(model_id).artifact_location
    described.save(str(folder / "MLmodel"))
    client.log_model_artifacts(model_id, str(folder))
    client.finalize_logged_model(model_id, LoggedModelStatus.READY)
    return model_id


def _champion(client: MlflowClient, name: str) -> ModelVersion | None:
    try:
        return client.get_model_version_by_alias(name, ALIAS)
    except MlflowException as error:
        if error.error_code in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"):
            return None
        raise


def _standing(client: MlflowClient, version: ModelVersion) -> dict[str, Any] | None:
    """How the champion did on validation; None where that is no longer there."""
    with TemporaryDirectory() as folder:
        try:
            # MLflow does not say which model a version found by its alias is of.
            files = client.get_logged_model(version.tags[_MODEL_ID]).artifact_location
            path = download_artifacts(
                f"{files}/{STANDING}", dst_path=folder, tracking_uri=client.tracking_uri
            )
            found: dict[str, Any] = read_json(Path(path))
        # Deleted, or its files are gone; the store itself has just answered.
        except (MlflowException, OSError, InputError, KeyError) as error:
            log.warning("champion version %s cannot be read: %s", version.version, error)
            return None
    return found
