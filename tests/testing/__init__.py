"""Tests of `fsxds.testing`."""
