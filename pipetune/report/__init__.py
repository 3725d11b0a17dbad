"""Text, code, pages and schemas made from records. Opens no file and prints nothing."""
