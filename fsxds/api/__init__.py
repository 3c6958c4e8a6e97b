"""Protobuf messages: the API's types, and conversions from and to JSON."""
