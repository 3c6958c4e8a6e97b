"""Tests of `fsxds.server`."""
