"""The version of the toolkit, in one place for everything that writes it down."""

VERSION = "0.4.0"
