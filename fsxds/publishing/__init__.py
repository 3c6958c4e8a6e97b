"""Publishes loaded trees: rollouts, canaries, and clients' rejections."""
