"""Between the protos and the policy service's own types; nothing else here knows both."""
