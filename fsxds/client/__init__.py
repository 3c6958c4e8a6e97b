"""Clients of an xDS server, one per wire: they subscribe as a node, and return each response as a value.

Created by `connection.streaming` and `polls.PollingClient`. `next()` waits for the next update, and ACKs the previous
one; `nack()` rejects it. Used by `fsxds watch`, relays and the tests.
"""
