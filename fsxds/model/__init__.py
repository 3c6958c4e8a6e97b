"""The shared vocabulary: values, resources and snapshots, names, the table of types, errors."""
