"""The field's own evaluation tools before our services: SimulEval and simulstream."""
