"""Grading: is a response's final answer the gold answer?"""

from gmc.grading.gold import gold_problem
from gmc.grading.grade import Grader, grade_many
from gmc.grading.verdict import Verdict

__all__ = ["Grader", "Verdict", "gold_problem", "grade_many"]
