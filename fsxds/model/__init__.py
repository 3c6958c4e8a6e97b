"""What everything else speaks of: values, resources and snapshots, names, the table of types, errors."""
