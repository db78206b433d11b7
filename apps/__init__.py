"""The thin shell around the functional core: the controller's application, its launcher and the command line."""
