"""Caches on disk: a missing, damaged or untrusted entry is treated as absent."""
