"""What a namespace tells Prometheus of itself, out of all its processes. See docs/metrics.md."""
