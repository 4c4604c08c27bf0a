"""Reproducible measurements: one command each, raw results kept. They decide no test."""
