"""Tests of `fsxds.local_envoy`."""
