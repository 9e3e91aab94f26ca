"""One message broker and its fragments: order, locks, settlement. No sockets, no SQL."""
