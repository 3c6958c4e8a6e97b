"""Publish what was loaded: one rollout for each channel, canaries first, and what clients rejected."""
