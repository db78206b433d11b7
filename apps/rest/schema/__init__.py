"""The contents of requests and responses: the models of the OpenAPI document.

Start with responses.py; change_responses.py and health.py have further responses, request_parameters.py and
request_bodies.py the requests.
"""
