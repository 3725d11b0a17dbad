"""What a script's source text says: where the value of a setting is written, and which option of the script sets it.

Nothing here runs or imports the script. What cannot be told from its text is ``None``, never guessed.
"""
