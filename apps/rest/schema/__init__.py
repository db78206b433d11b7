"""What requests and answers hold: the models that the OpenAPI document is made from.

Start with answers.py.
"""
