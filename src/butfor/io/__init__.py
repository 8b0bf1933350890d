"""Reading logs, studies and models from files and other libraries."""
