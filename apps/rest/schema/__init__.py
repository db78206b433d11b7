"""What requests and answers hold: the models that the OpenAPI document is made from.

Start with responses.py; change_responses.py and health.py hold other answers, request_parameters.py and
request_bodies.py what is asked.
"""
