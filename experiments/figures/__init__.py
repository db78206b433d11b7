"""``dets figures``: run what a paper's claims need, store the results, and write the pages.

Start with figure_runner.py.
"""
