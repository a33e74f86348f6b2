"""Decision policies: pure objects, evidence in, decision out."""
