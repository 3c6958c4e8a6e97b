"""Clients of an xDS server, one for each wire: they subscribe as a node, and tell each answer as a value.

`clients.streaming` and `polls.PollingClient` give one. `next()` waits for what the server tells next, and says ACK to what
it told before; `nack()` refuses it. `fsxds watch` and the tests are clients by them.
"""
