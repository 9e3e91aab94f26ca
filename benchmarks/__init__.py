"""Benchmarks: tandembus and RabbitMQ side by side, on the same machine, in the same run (`make bench`)."""
