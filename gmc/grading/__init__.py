"""Grading: is a response's final answer the gold answer?"""
