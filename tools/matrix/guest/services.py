"""The units as they are shipped, under a real systemd."""

CHECKS = {}
