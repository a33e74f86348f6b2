"""Latency metrics: functions of times, of lengths, and of nothing else."""
