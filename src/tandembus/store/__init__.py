"""Where fragments are durable."""
