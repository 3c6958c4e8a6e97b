"""Tests of `fsxds.envoy`."""
