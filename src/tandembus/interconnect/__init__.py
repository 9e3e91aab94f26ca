"""Between front end and broker: the same calls in one process or across a socket."""
