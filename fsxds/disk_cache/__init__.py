"""Caches on disk: damaged or untrusted entries count as absent."""
