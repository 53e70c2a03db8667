"""Runs of one trace against each other, as a whole and job by job."""
