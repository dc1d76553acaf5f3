"""Evaluation: benchmarks, samples on disk, scores with intervals, comparisons."""
