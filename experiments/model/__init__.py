"""The model fabric: switches, links, hosts and TCP in virtual time, around the very same central controller."""
