"""Screens: each wires what acts to widgets. Its styles lie beside it."""
