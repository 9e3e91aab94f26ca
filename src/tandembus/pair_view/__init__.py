"""What a namespace sees of the pair it is part of, and the story that the views of both namespaces tell together.

Pairing is the clients' business: no namespace is told that it is a primary or a secondary. But the primary sees pings
and refusals, the secondary sees what arrives in backlog queues, and both see the syphon.
"""
