"""What a notebook or a script calls: :func:`pipetune.sweep`, :func:`pipetune.observe` and :func:`pipetune.watch`."""
