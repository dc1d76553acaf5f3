"""Model A: a policy so small that every expectation over groups of responses is a finite sum. `gmc lab exact`."""
