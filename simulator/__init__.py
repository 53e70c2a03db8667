"""The same traces and policies without a cluster."""
