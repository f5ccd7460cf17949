"""Launchers: how programs are started on the nodes of a fabric, and how they are stopped."""
