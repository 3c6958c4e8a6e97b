"""Clients of an xDS server, one for each wire: they subscribe as a node, and return each response as a value.

`connection.streaming` and `polls.PollingClient` make one. `next()` waits for the next update, and sends the ACK of the one
before; `nack()` rejects it. `fsxds watch`, relays and the tests are clients by them.
"""
