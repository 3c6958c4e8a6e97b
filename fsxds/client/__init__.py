"""Clients of an xDS server, one per wire.

Created by `connection.streaming` and `polls.PollingClient`. `next()` waits for the next update, and ACKs the previous
one; `nack()` rejects it.
"""
