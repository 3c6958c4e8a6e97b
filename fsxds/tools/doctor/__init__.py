"""Reads an Envoy's bootstrap beside a tree, and says what will hurt when the two meet."""
