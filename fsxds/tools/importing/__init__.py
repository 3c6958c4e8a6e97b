"""`fsxds import`: the static resources of a bootstrap become a tree, and the bootstrap that is left asks fsxds for them."""
