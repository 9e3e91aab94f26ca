"""An application of Celery on Service Bus, as its users write one; test_celery.py runs its worker."""

import os
from pathlib import Path

from celery import Celery, Task

app = Celery(
    "jobs",
    broker=os.environ["TANDEMBUS_BROKER_URL"],
    backend=f"file://{os.environ['TANDEMBUS_RESULTS']}",
)
app.conf.update(
    task_default_queue=os.environ["TANDEMBUS_QUEUE"],
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_transport_options={"wait_time_seconds": 1, "peek_lock_seconds": 5},
    worker_enable_remote_control=False,
    worker_send_task_events=False,
)


@app.task
def add(one: int, other: int) -> int:
    return one + other


@app.task(bind=True, max_retries=3)
def fail_twice(self: Task) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return self.request.retries


@app.task
def die_once(marker: str) -> str:
    """The first worker to run it is gone in the middle of it."""
    path = Path(marker)
    if not path.exists():
        path.write_text("died")
        os._exit(1)
    return "survived"
