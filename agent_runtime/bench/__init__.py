"""Measurements against what one would use instead, pair by pair in the same run.

One module per bench; each returns the JSON form that `rows` documents. May import everything but the command line.
"""
