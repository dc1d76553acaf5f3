"""Grading: is a response's final answer the gold answer?"""

from gmc.grading.grade import Grader, Verdict, gold_problem, grade_many

__all__ = ["Grader", "Verdict", "gold_problem", "grade_many"]
