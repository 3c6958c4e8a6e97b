"""Examines a bootstrap with a tree, for problems at Envoy's start."""
