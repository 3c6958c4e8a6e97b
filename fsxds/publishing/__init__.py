"""Publishes loaded trees: one rollout per channel, canaries first, and the rejections of clients."""
