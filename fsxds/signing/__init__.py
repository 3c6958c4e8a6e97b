"""Signed trees: the manifest, its signature, and the verification of trees."""
