"""Where the time of a loader goes, and what sets its pace: ``pipetune explain``. Measures, decides; prints nothing."""
