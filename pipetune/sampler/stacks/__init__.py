"""What a thread is doing, told from its Python stack as py-spy reads it from outside: no right to change anything."""
