"""Jobs: the first use of the kernel. Its rooms are those of every use: `decide` (pure), `observe`, `act`, `driver`."""
