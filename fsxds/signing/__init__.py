"""Signed trees: the manifest, its signature, and whether what was read may be served."""
