"""Which applications may share a core, learnt from performance counters."""
