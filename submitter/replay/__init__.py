"""The replay: a clock that submits what was planned, and goes on where a killed one ended."""
