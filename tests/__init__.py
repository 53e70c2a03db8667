"""The tests; a package, so that builders in ``tests.fixtures`` have one name."""
