"""`fsxds import`: moves the static resources of a bootstrap into a tree."""
