"""What the Spark pipeline refuses, with a text that says what to do next."""


class SparkUnavailable(RuntimeError):
    """Spark cannot be started on this machine."""
