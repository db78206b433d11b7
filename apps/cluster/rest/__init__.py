"""REST requests to one node of several: its requests to the others, and the merged responses."""
