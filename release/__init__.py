"""What `make dist` does after the build."""
