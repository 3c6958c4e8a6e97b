"""Signed trees."""
