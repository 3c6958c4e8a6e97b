"""Tests of `fsxds.status`."""
