"""Adapters that let the field's evaluation tools, SimulEval and simulstream, use our services."""
