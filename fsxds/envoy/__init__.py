"""An Envoy of one's own beside fsxds: its bootstrap, its process, and its status on each snapshot."""
