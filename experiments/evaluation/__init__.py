"""The evaluation: scenarios described once, run on any fabric under any control, measured, and set against claims."""
