"""Reading: resolve one pinned snapshot, plan picklable partitions, scan them where Spark wants the rows."""
