"""Writing: capture one base, stage beside it, publish in one compare-and-swap, recover what died in between."""
