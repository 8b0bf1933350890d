"""The command line, as `butfor` or `python -m butfor`."""

import os


def run() -> None:
    """Run the command line; Ctrl-C while it loads is quiet."""
    try:
        from butfor.cli import main  # noqa: PLC0415  takes long enough to be interrupted
    except KeyboardInterrupt:
        os._exit(130)
    main.run()


if __name__ == "__main__":
    run()
