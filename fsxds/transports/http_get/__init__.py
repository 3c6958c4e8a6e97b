"""The HTTP GET transport: resources at URLs, with entity tags, in accepted formats."""
