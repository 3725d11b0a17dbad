"""Records in; text, code and JSON out. Opens no file and prints nothing."""
