"""Clients of an xDS server, one per wire.

`connection.streaming` and `polls.PollingClient` create them. `next()` awaits an update, and ACKs the previous one;
`nack()` rejects it.
"""
