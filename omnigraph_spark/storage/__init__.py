"""The only code that touches bytes: objects, Lance datasets, counters and the seams tests replace."""
