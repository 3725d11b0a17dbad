"""Why accelerator time is lost: causes with numbers and advice, from readings of a job. Pure: no process, no device."""
