"""Tests of fsxds/disk_cache."""
