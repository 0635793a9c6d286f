"""One file per library with its implementation of each workload; runs as a process in the library's own environment."""
