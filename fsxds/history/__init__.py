"""The state directory: the last snapshots and rollouts, kept across restarts.

It contains the tree's secrets, so only its owner can read it. `state.py` is the interface.
"""
