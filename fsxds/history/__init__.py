"""The state directory: the last snapshots of each view, and the place of each rollout, kept across restarts.

It contains the secrets of the tree, so only its owner can read it. `state.py` is the interface.
"""
