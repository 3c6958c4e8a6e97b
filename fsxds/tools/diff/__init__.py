"""Compares trees, revisions or running servers."""
