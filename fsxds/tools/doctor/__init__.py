"""Examine an Envoy's bootstrap together with a tree, and report what will go wrong when the Envoy starts."""
