"""Requests to one node of several: what it asks the others over REST, and what their answers make."""
