"""A local Envoy: its bootstrap, its process, and its status on each snapshot."""
