"""What requests and answers hold: the models that the OpenAPI document is made from.

Start with answers.py; changed.py and health.py hold other answers, requests.py and bodies.py what is asked.
"""
