"""Loads a tree of files into checked, versioned snapshots, or into problems."""
