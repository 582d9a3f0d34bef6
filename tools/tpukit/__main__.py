"""`python -m tpukit`, and where the command `tpu` begins: before anything that takes time to load."""

import os
import signal
import sys

_SAYS = b"\nnothing was sent\n" if sys.argv[1:2] == ["run"] else b"\n"


def _leave(_number: int, _frame: object) -> None:
    os.write(2, _SAYS)
    os._exit(130)


# While Python still loads things, Ctrl-C would end in a traceback.
if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
    signal.signal(signal.SIGINT, _leave)


def main() -> None:
    from tpukit.cli import main

    main()


if __name__ == "__main__":
    main()
