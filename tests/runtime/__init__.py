"""Tests of `fsxds.runtime`."""
