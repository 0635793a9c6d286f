"""One file per library: how it does each job. Run in the library's own environment, as a process."""
