"""The tests; a package, so that helpers such as `tests.lab` have one name wherever they are imported from."""
