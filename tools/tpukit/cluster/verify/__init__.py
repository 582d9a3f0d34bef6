"""Verify that a cluster does what its plan promises: small jobs on each pool, and limits for what they measure."""
