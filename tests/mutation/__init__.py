"""Mutation testing with cosmic-ray's operators: `python -m tests.mutation`. Not part of the suite."""
