"""The HTTP GET transport: resources at URLs, with entity tags, in the formats and codings that clients accept."""
