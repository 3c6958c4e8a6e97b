"""Caches on disk for the next start.

Nothing depends on them: a missing, damaged or untrusted entry is treated as absent.
"""
