"""How long tests wait for what has to happen."""

# Only a test that fails waits so long. A machine that does much else besides may stop a process for seconds.
PATIENCE_S = 120.0

# Whoever waits as long as this keeps a test waiting for longer than its patience.
NEVER_S = 1200.0
