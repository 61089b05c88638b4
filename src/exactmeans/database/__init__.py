"""Connections to databases of every kind behind one interface."""
