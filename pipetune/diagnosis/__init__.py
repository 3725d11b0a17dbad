"""From looks at a running job to the causes of its lost time, with numbers and advice. Pure: no process, no device."""
