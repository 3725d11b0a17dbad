"""What other cores, disks, memory, accelerators, ranks or images would bring: answered from a run, and checked."""
