"""The command line, as `butfor` or `python -m butfor`."""

from butfor.loading import quiet_ctrl_c


def run() -> None:
    """Run the command line."""
    with quiet_ctrl_c():
        from butfor.cli import main  # noqa: PLC0415  takes long enough to be interrupted
    main.run()


if __name__ == "__main__":
    run()
