"""Entry point of `python -m tpukit` and of the command `tpu`."""

import gc
import os
import signal
import sys

_SAYS = b"\nthe job was not sent\n" if sys.argv[1:2] == ["run"] else b"\n"


def _leave(_number: int, _frame: object) -> None:
    os.write(2, _SAYS)
    os._exit(130)


# Handle Ctrl-C before the slow imports: it would end in a traceback.
if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
    signal.signal(signal.SIGINT, _leave)


# Imports create many objects that stay; a short command spends less time if they are collected rarely.
gc.set_threshold(20_000, *gc.get_threshold()[1:])


def main() -> None:
    from tpukit.cli import main

    main()


if __name__ == "__main__":
    main()
