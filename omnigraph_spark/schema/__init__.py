"""The schema of a graph: its language, its compiled form, its catalog and its types in Arrow and Spark."""
