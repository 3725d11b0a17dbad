"""What a training script uses of pipetune: the loader that a sweep recommends. Imports torch."""
