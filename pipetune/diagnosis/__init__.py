"""From readings of a job to the causes of its lost time, with numbers and advice. Pure: no process, no device."""
