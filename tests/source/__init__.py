"""Tests of fsxds/source."""
