"""A local Envoy beside fsxds: its bootstrap, its process, and its status on each snapshot."""
