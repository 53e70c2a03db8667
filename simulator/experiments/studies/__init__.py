"""One module for each study of claims; its name is that of the command ``osub experiment NAME``."""
