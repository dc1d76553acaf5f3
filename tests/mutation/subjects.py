"""What is mutated, and the test files that should notice, cheap ones first."""

ESTIMATORS = [
    "test_estimators_settings.py",
    "test_estimators_class.py",
    "test_estimators_trajectory.py",
    "test_estimators_grpo.py",
    "test_estimators_epsilon.py",
    "test_estimators_baseline.py",
    "test_estimators_kl.py",
    "test_estimators_composed.py",
    "test_estimators_decoupled.py",
    "test_estimators_vcpo.py",
    "test_estimators_contract.py",
]
DELAYS = [
    "test_delays_fixed.py",
    "test_delays_steady.py",
    "test_delays_reuse.py",
    "test_delays_version_0.py",
    "test_delays_spec.py",
    "test_delays_clock.py",
    "test_delays_calibration.py",
    "test_delays_schedule.py",
    "test_delays_contract.py",
    "test_scheduled_source.py",
]
STATISTICS = [
    "test_evaluation_statistics.py",
    "test_evaluation_compare.py",
    "test_evaluation_runner.py",
    "test_evaluation_arms.py",
]
UPDATES = [
    "test_metrics_values.py",
    "test_update_values.py",
    "test_update_batch.py",
    "test_normalize.py",
    "test_optimizer.py",
    "test_optimizer_state.py",
]

SUBJECTS: dict[str, list[str]] = {
    "gmc/estimators/names.py": ["test_cli_exit_codes.py", "test_cli_errors.py"],
    "gmc/estimators/registry.py": ["test_estimators_registry.py", "test_cli_estimators.py"],
    "gmc/estimators/setting_docs.py": ["test_estimators_registry.py", "test_estimators_settings.py", "test_estimator_docs.py"],
    "gmc/estimators/results.py": ["test_estimators_contract.py", "test_rule_calls.py"],
    "gmc/estimators/sample_size.py": ["test_estimators_vcpo.py", "test_metrics_values.py", "test_comparison_values.py"],
    "gmc/estimators/batch.py": [*ESTIMATORS, "test_assemble.py"],
    "gmc/estimators/*.py": ESTIMATORS,
    "gmc/training/metrics.py": UPDATES,
    "gmc/training/update.py": [*UPDATES, "test_weighing.py", "test_delays_version_0.py"],
    "gmc/training/optimizer.py": UPDATES,
    "gmc/training/optimizer_state.py": UPDATES,
    "gmc/gradients/*.py": ["test_assemble.py", "test_weighing.py", "test_comparison_values.py", *UPDATES, "test_rule_calls.py"],
    "gmc/delays/inflight.py": ["test_inflight.py", "test_delays_contract.py"],
    "gmc/delays/*.py": DELAYS,
    "gmc/evaluation/statistics.py": STATISTICS,
    "gmc/evaluation/scores.py": STATISTICS,
    "gmc/evaluation/compare.py": STATISTICS,
    "gmc/evaluation/majority.py": ["test_evaluation_benchmarks.py"],
    "gmc/evaluation/arms.py": STATISTICS,
    "gmc/simulator/statistics.py": ["test_simulate_delays.py"],
    "gmc/store/files.py": ["test_files.py", "test_checkpoint.py", "test_policies.py", "test_shards_store.py"],
}
"""Pattern of files to their tests; the first pattern that fits a file holds."""
