"""Tests of the package and the rig they run on."""
