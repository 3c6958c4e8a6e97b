"""Which protobuf messages exist, and how plain values become messages and messages become JSON."""
