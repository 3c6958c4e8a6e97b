"""The state directory: the last snapshots of each view, and the place of each rollout, kept across restarts.

Secrets are in it as they are in the tree, so it is for its owner alone. `state.py` is what others use.
"""
