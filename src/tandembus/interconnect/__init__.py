"""Between front ends and message brokers: one seam, whether the broker is in this process or behind a socket."""
