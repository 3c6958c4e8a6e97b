"""From a tree of files to checked, versioned snapshots, or to problems."""
