"""What every room stands on: specs and registries, errors, files and locks, the console, GPUs."""
