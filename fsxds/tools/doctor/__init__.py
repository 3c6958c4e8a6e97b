"""Finds problems of a bootstrap with a tree."""
