"""What a thread of the job is doing, by its Python stack, which py-spy reads from outside without stopping the job."""
