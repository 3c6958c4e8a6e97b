"""Tests of `fsxds.model`."""
