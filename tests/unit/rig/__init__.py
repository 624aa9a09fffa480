"""Proofs that the rig does what it says."""
