"""Screens: each wires services to widgets. Its styles lie beside it."""
