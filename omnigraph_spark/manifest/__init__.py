"""``__manifest``: the one source of truth. Row kinds, the fold over them, lineage, and opening it."""
