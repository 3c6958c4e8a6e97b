"""The settings of fsxds."""
