"""Our policies and services against decisions and runs of the papers' released code."""
