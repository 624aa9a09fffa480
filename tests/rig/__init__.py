"""Real parts to test against: an S3 server, a counting and fault-injecting proxy, a graph builder."""
