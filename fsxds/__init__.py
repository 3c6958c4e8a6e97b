"""The map of the house and the version.

Files come in on the left, clients are served on the right, and the two meet in `store.py`::

    sources ──► reload ──► snapshots ──► store ──► protocol ──► transports ──► bytes
    (watchdog,     │       (parse, accept,     (what to say,   (REST long poll,
     rescan)       │        version: pure)      to whom: pure)  mirrored files)
                   └──► problems ──► operations ◄── who was sent, took or refused what

1. `values.py`: what flows.
2. `reload.py`: what happens when a file changes.
3. `protocol/poll.py` and, beside it, `tests/conversations/`: what happens when a client asks.
4. `app.py`: how the rooms are introduced to one another.

The rules of xDS are in `protocol/`, file formats in `formats/`, wires in `transports/`. Everything in `api/`,
`formats/`, `snapshots/` and `protocol/` is pure: no I/O, no clock. Imports point downwards only::

    commands
    app
    settings
    operations | reload | sources | transports | local_envoy
    serving | parsing
    parse_worker
    store
    snapshots | protocol
    formats
    api
    resource_types
    values | errors
"""

__version__ = "0.1.0"
