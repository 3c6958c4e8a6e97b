"""Signed trees: manifests and their verification."""
