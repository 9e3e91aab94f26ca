"""`make demo`: an outage that one can watch, and an account of what it cost."""
