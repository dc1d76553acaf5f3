"""What `gmc simulate-delay` does beyond training: clusters, servers, failures, theory, without a model."""
