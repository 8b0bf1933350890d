"""The command line, as `python -m butfor`."""

from butfor.cli.main import run

if __name__ == "__main__":
    run()
