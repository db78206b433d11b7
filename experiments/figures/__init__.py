"""``dets figures``: run what a paper's claims need, keep what came of it, and write the pages.

Start with figure_runner.py.
"""
