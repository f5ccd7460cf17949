"""A source of a series, for tests. Nothing in it was measured."""

from __future__ import annotations

MADE_UP = """\
title = "A page"
setup = {}
inferred = []

[[series]]
id = "latency"
grade = "A"
tool = "ib_read_lat"
metric = "latency"
operation = "read"
unit = "us"
column = "t_typical"
adapter = "roce-25g"
host = "sandy-bridge-ep"
stack = "verbs"
path_mtu_bytes = 1024
points = [[2, 2.0]]
"""
