"""Tests of the protocol's rules."""
