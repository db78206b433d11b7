"""The evaluation: runs measured, compared with an oracle, drawn, and set against claims.

Start with measures.py and oracle.py; run_matrix.py says which runs there are and keeps what came of each.
"""
