"""The syphon: moves the messages of backlog queues to the primary (N11-N14).

`engine` empties one backlog queue, with `destinations` (which take nothing now), `look_ahead` (what peeking shows),
`hold` (locks) and `home` (sends to the primary). It reaches the two namespaces through `ports`; `client_port`
implements them on `tandembus.client`. `host` runs a syphon inside an application, `observer` counts and logs.
"""
