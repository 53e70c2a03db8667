"""The RUN directory: what a real and a simulated run leave behind, validated on read and write."""
