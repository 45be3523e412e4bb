"""MLflow: one pipeline run per state of params and data, one nested run per stage that ran.

Run ids are always explicit (``start_run`` would end the parent with every stage), everything is
batched (a single ``log_metric`` costs 10 ms), and nothing here raises because the store is away:
what cannot be delivered is kept in a spool file, delivered later by this or the next command, and
the person is told.

The rules of a pipeline run:

* It is found again by its fingerprint while it is open: the stages of one command share it, and
  a later command goes on with one whose command ended between two stages.
* A FAILED or KILLED one stays so; its repair is a new attempt.
* ``publish`` closes it as FINISHED. Nothing else does.
* A run found RUNNING whose process is gone is marked KILLED by the next command.
"""

import os

# Read by MLflow when it is imported, so they stand before the import. A dead server may cost
# seconds, not the four minutes of the default.
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}.items():
    os.environ.setdefault(_name, _value)
