"""Metrics: one SQL file of observations and one declaration each."""
