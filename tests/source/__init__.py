"""Tests of fsxds/sources."""
