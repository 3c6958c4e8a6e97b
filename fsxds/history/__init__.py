"""The state directory: the last snapshots and rollouts, kept across restarts.

It contains the secrets of the tree, so only its owner can read it. `state.py` is the interface.
"""
