"""What enters a training script of the user's: finds its loaders, measures in its loop, applies tuned settings.

It runs inside the user's process, which may be another environment than pipetune's: standard library only, and nothing
is imported that the script would not import itself. Nothing else in pipetune imports it.

``site/`` is the folder that is put first on PYTHONPATH; its ``sitecustomize`` calls :func:`pipetune.hook.enter.enter`.
"""
