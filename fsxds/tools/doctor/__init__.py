"""Examines an Envoy's bootstrap together with a tree, for problems when the Envoy starts."""
