"""The policy service: owns every session, and decides when to speak."""
