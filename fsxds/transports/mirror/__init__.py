"""The mirror: a directory, watched by Envoys, that follows the snapshots."""
