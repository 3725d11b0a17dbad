"""Training scripts shaped as people write them, which know nothing of pipetune. Each prints its rate, epoch by epoch.

``--step-ms`` is how long a training step takes besides computing; ``--seen FILE`` writes the number of each sample that
was trained on, so that a test can count them.
"""
