"""The evaluation: runs measured, compared with an oracle, drawn, and checked against claims.

Start with measures.py and oracle.py; run_matrix.py lists the runs and stores their results.
"""
