"""Advice from a site's own log: what sharing cores would have done to its jobs, and how sure that is."""
