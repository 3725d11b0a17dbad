"""The parent's side of measuring in a user's own training script. What runs inside of it is ``pipetune.hook``."""
