"""The thesis's simulated experiments again: ``thesis5`` and ``thesis6`` say what is run, ``study`` how."""
