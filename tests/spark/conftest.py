"""Settings of the Java processes that these tests start, the session's and those of applications of their own."""

from __future__ import annotations

import os

# They live for seconds: the first compiler and the simplest collector cost a third less time in all.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
