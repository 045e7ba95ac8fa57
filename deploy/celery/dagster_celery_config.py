"""Settings of a Celery worker, which dagster_celery.app reads where PYTHONPATH has this folder."""

# The prefork child that ran a run is replaced: what a run leaves in memory is not the next one's.
worker_max_tasks_per_child = 1
# A worker that is busy for hours must not keep a task that another could begin.
worker_prefetch_multiplier = 1
worker_disable_prefetch = True
# Redis hands a task that nobody has confirmed to another worker after this time; the longest run is
# bounded by max_runtime_seconds of dagster.yaml, one day. Results are kept longer than that, too.
_LONGER_THAN_A_RUN_S = 2 * 86_400
broker_transport_options = {"visibility_timeout": _LONGER_THAN_A_RUN_S}
result_expires = _LONGER_THAN_A_RUN_S
broker_connection_retry_on_startup = True
