"""Sends one task and prints its result: ask.py TASK [ARGUMENT...]."""

import json
import sys

import jobs

task, arguments = sys.argv[1], [json.loads(one) for one in sys.argv[2:]]
print(json.dumps(getattr(jobs, task).delay(*arguments).get(timeout=120)))
