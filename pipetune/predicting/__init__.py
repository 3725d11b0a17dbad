"""Rates that were not measured: from what loading costs to what other cores, workers, disks or images would bring."""
