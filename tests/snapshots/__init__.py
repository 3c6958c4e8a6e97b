"""Tests of the way from a tree of files to a snapshot."""
