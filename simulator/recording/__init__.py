"""A simulated run as a RUN directory."""
